// RocketMQ's official Java client, unchanged: what it sends and receives, one line each. Run with the address of a gateway.

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Collections;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.StaticSessionCredentialsProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

public class Official {
    static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    static final Set<String> ASKED = ConcurrentHashMap.newKeySet();
    static ClientConfiguration configuration;

    static synchronized void say(String what, String text) {
        System.out.println(what + "\t" + text);
    }

    static MessageBuilder made(String topic, String body) {
        return PROVIDER.newMessageBuilder().setTopic(topic).setTag("red").setKeys("key").addProperty("color", "blue")
            .setBody(body.getBytes(StandardCharsets.UTF_8));
    }

    static String body(MessageView message) {
        ByteBuffer body = message.getBody();
        return StandardCharsets.UTF_8.decode(body).toString();
    }

    static void send() throws Exception {
        Producer producer = PROVIDER.newProducerBuilder().setClientConfiguration(configuration).setTopics("news", "lines", "later").build();
        long due = System.currentTimeMillis() + 2000;
        say("due", String.valueOf(due));
        say("sent", producer.send(made("news", "normal").build()).getMessageId().toString());
        say("sent", producer.send(made("news", "failing").setTag("green").build()).getMessageId().toString());
        say("sent", producer.send(made("lines", "ordered").setMessageGroup("g").build()).getMessageId().toString());
        say("sent", producer.send(made("later", "delayed").setDeliveryTimestamp(due).build()).getMessageId().toString());
        SendReceipt recalled = producer.send(made("later", "recalled").setDeliveryTimestamp(due).build());
        say("recalled", producer.recallMessage("later", recalled.getRecallHandle()).toString());
        try {
            producer.send(made("orders", "no transaction").build());
        } catch (Exception refused) {
            say("refused", refused.getMessage());
        }
        producer.close();
    }

    static TransactionResolution check(MessageView message) {
        String text = body(message);
        say("checked", text);
        if (text.equals("left, rolled back")) {
            return TransactionResolution.ROLLBACK;
        }
        return ASKED.add(text) ? TransactionResolution.UNKNOWN : TransactionResolution.COMMIT;
    }

    static Producer transact() throws Exception {
        Producer producer = PROVIDER.newProducerBuilder().setClientConfiguration(configuration).setTopics("orders")
            .setTransactionChecker(Official::check).build();
        for (String each : List.of("committed", "rolled back", "left, committed", "left, rolled back")) {
            Transaction transaction = producer.beginTransaction();
            say("half", producer.send(made("orders", each).build(), transaction).getMessageId().toString());
            if (each.equals("committed")) {
                transaction.commit();
            } else if (each.equals("rolled back")) {
                transaction.rollback();
            }
        }
        return producer;
    }

    static void receive(int expected) throws Exception {
        SimpleConsumer consumer = PROVIDER.newSimpleConsumerBuilder().setClientConfiguration(configuration).setConsumerGroup("readers")
            .setAwaitDuration(Duration.ofSeconds(3)).setSubscriptionExpressions(java.util.Map.of(
                "news", new FilterExpression("red"), "lines", FilterExpression.SUB_ALL, "later", FilterExpression.SUB_ALL,
                "orders", new FilterExpression("color = 'blue'", FilterExpressionType.SQL92))).build();
        int found = 0;
        long end = System.currentTimeMillis() + 60000;
        while (found < expected && System.currentTimeMillis() < end) {
            for (MessageView each : consumer.receive(16, Duration.ofSeconds(15))) {
                say("received", body(each) + "\t" + each.getMessageId() + "\t" + each.getProperties().get("color")
                    + "\t" + each.getDeliveryAttempt() + "\t" + System.currentTimeMillis());
                boolean again = body(each).equals("normal") && each.getDeliveryAttempt() == 1;
                consumer.changeInvisibleDuration(each, Duration.ofSeconds(again ? 1 : 20));
                if (!again) {
                    consumer.ack(each);
                }
                found++;
            }
        }
        consumer.close();
    }

    static void push() throws Exception {
        CountDownLatch done = new CountDownLatch(2);
        PROVIDER.newPushConsumerBuilder().setClientConfiguration(configuration).setConsumerGroup("pushers")
            .setSubscriptionExpressions(Collections.singletonMap("news", FilterExpression.SUB_ALL)).setMessageListener(message -> {
                say("pushed", body(message) + "\t" + message.getDeliveryAttempt());
                if (message.getDeliveryAttempt() == 1) {
                    return ConsumeResult.FAILURE;
                }
                done.countDown();
                return body(message).equals("failing") ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
            }).build();
        done.await(40, TimeUnit.SECONDS);
        Thread.sleep(500);  // it acknowledges; to close it would wait for the end of a long poll
    }

    public static void main(String[] words) throws Exception {
        configuration = ClientConfiguration.newBuilder().setEndpoints(words[0]).enableSsl(false)
            .setCredentialProvider(new StaticSessionCredentialsProvider(words[1], words[2])).build();
        send();
        Producer producer = transact();
        receive(6);
        push();
        producer.close();
        System.exit(0);
    }
}
