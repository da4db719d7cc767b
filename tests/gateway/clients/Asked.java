// RocketMQ's official Java client: a push consumer that says what its listener gets, until its input ends.

import java.nio.charset.StandardCharsets;
import java.util.Collections;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;

public class Asked {
    public static void main(String[] words) throws Exception {
        ClientServiceProvider provider = ClientServiceProvider.loadService();
        provider.newPushConsumerBuilder()
            .setClientConfiguration(ClientConfiguration.newBuilder().setEndpoints(words[0]).enableSsl(false).build())
            .setConsumerGroup("pushers")
            .setSubscriptionExpressions(Collections.singletonMap("news", FilterExpression.SUB_ALL))
            .setMessageListener(message -> {
                String body = StandardCharsets.UTF_8.decode(message.getBody()).toString();
                System.out.println(body + "\t" + message.getDeliveryAttempt());
                return body.equals("bad") ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
            }).build();
        System.in.read();
        System.exit(0);
    }
}
