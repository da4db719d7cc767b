// RocketMQ's official Go client, unchanged: what it sends and receives, one line each. Run with the address of a gateway.

package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strings"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"

	"official/must"
)

var saying sync.Mutex

func say(words ...string) {
	saying.Lock()
	defer saying.Unlock()
	fmt.Println(strings.Join(words, "\t"))
}

func configuration(group string) *rocketmq.Config {
	given := &credentials.SessionCredentials{AccessKey: os.Args[2], AccessSecret: os.Args[3]}
	return &rocketmq.Config{Endpoint: os.Args[1], ConsumerGroup: group, Credentials: given}
}

func made(topic, body string) *rocketmq.Message {
	message := &rocketmq.Message{Topic: topic, Body: []byte(body)}
	message.SetTag("red")
	message.SetKeys("key")
	message.AddProperty("color", "blue")
	return message
}

func sent(producer rocketmq.Producer, message *rocketmq.Message) *rocketmq.SendReceipt {
	receipts, err := producer.Send(context.Background(), message)
	must.Succeed(err)
	return receipts[0]
}

func send() {
	producer, err := rocketmq.NewProducer(configuration(""), rocketmq.WithTopics("news", "lines", "later"))
	must.Succeed(err)
	must.Succeed(producer.Start())
	due := time.Now().Add(2 * time.Second)
	say("due", fmt.Sprint(due.UnixMilli()))
	say("sent", sent(producer, made("news", "normal")).MessageID)
	failing := made("news", "failing")
	failing.SetTag("green")
	say("sent", sent(producer, failing).MessageID)
	ordered := made("lines", "ordered")
	ordered.SetMessageGroup("g")
	say("sent", sent(producer, ordered).MessageID)
	delayed, recalled := made("later", "delayed"), made("later", "recalled")
	delayed.SetDelayTimestamp(due)
	say("sent", sent(producer, delayed).MessageID)
	recalled.SetDelayTimestamp(due)
	id, err := producer.Recall(context.Background(), "later", sent(producer, recalled).RecallHandle)
	must.Succeed(err)
	say("recalled", id)
	if _, err = producer.Send(context.Background(), made("orders", "no transaction")); err != nil {
		say("refused", err.Error())
	}
	must.Succeed(producer.GracefulStop())
}

var asked sync.Map

func check(message *rocketmq.MessageView) rocketmq.TransactionResolution {
	body := string(message.GetBody())
	say("checked", body)
	if body == "left, rolled back" {
		return rocketmq.ROLLBACK
	}
	if _, again := asked.LoadOrStore(body, true); again {
		return rocketmq.COMMIT
	}
	return rocketmq.UNKNOWN
}

func transact() rocketmq.Producer {
	producer, err := rocketmq.NewProducer(configuration(""), rocketmq.WithTopics("orders"),
		rocketmq.WithTransactionChecker(&rocketmq.TransactionChecker{Check: check}))
	must.Succeed(err)
	must.Succeed(producer.Start())
	for _, body := range []string{"committed", "rolled back", "left, committed", "left, rolled back"} {
		transaction := producer.BeginTransaction()
		receipts, err := producer.SendWithTransaction(context.Background(), made("orders", body), transaction)
		must.Succeed(err)
		say("half", receipts[0].MessageID)
		switch body {
		case "committed":
			must.Succeed(transaction.Commit())
		case "rolled back":
			must.Succeed(transaction.RollBack())
		}
	}
	return producer
}

func receive(expected int) {
	blue := rocketmq.NewFilterExpressionWithType("color = 'blue'", rocketmq.SQL92)
	consumer, err := rocketmq.NewSimpleConsumer(configuration("readers"), rocketmq.WithSimpleAwaitDuration(time.Second),
		rocketmq.WithSimpleSubscriptionExpressions(map[string]*rocketmq.FilterExpression{
			"news": rocketmq.NewFilterExpression("red"), "lines": rocketmq.SUB_ALL, "later": rocketmq.SUB_ALL, "orders": blue}))
	must.Succeed(err)
	must.Succeed(consumer.Start())
	for end := time.Now().Add(time.Minute); expected > 0 && time.Now().Before(end); {
		messages, err := consumer.Receive(context.Background(), 16, 15*time.Second)
		if err != nil {
			log.Print(err) // nothing has arrived
		}
		for _, each := range messages {
			say("received", string(each.GetBody()), each.GetMessageId(), each.GetProperties()["color"],
				fmt.Sprint(each.GetDeliveryAttempt()), fmt.Sprint(time.Now().UnixMilli()))
			if string(each.GetBody()) == "normal" && each.GetDeliveryAttempt() == 1 {
				must.Succeed(consumer.ChangeInvisibleDuration(each, time.Second))
			} else {
				must.Succeed(consumer.ChangeInvisibleDuration(each, 20*time.Second))
				must.Succeed(consumer.Ack(context.Background(), each))
			}
			expected--
		}
	}
	must.Succeed(consumer.GracefulStop())
}

func push() {
	done := make(chan bool, 9)
	listener := &rocketmq.FuncMessageListener{Consume: func(message *rocketmq.MessageView) rocketmq.ConsumerResult {
		say("pushed", string(message.GetBody()), fmt.Sprint(message.GetDeliveryAttempt()))
		if message.GetDeliveryAttempt() == 1 {
			return rocketmq.FAILURE
		}
		done <- true
		if string(message.GetBody()) == "failing" {
			return rocketmq.FAILURE
		}
		return rocketmq.SUCCESS
	}}
	consumer, err := rocketmq.NewPushConsumer(configuration("pushers"), rocketmq.WithPushMessageListener(listener),
		rocketmq.WithPushSubscriptionExpressions(map[string]*rocketmq.FilterExpression{"news": rocketmq.SUB_ALL}))
	must.Succeed(err)
	must.Succeed(consumer.Start())
	for range 2 {
		select {
		case <-done:
		case <-time.After(40 * time.Second):
		}
	}
	time.Sleep(500 * time.Millisecond) // it acknowledges; to stop it would wait for the end of a long poll
}

func main() {
	rocketmq.EnableSsl = false
	send()
	producer := transact()
	receive(6)
	push()
	must.Succeed(producer.GracefulStop())
}
