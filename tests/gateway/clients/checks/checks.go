// Transactions of RocketMQ's official Go client whose ends and checks race: ADDRESS TOPIC NUMBER CALLERS.
//
// By its number each one is committed at once, rolled back at once, left to a check that commits or rolls back, committed
// late (a check may say so before), or committed late by a program that does not know that a check has rolled it back.
// It prints how many committed ones were not delivered, how many came twice, how many rolled-back ones were delivered,
// and how many checks came for what the program had settled before, by way.

package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strconv"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"

	"official/must"
)

const (
	atOnce = iota
	rolledBack
	leftToCommit
	leftToRollBack
	late
	unaware
	ways
)

type book struct {
	sync.Mutex
	outcome   map[int]string // what was decided first, as the program has been told
	ending    map[int]bool   // the program has begun to commit what it does not know about
	delivered map[int]int
	again     [ways]int
}

// settle records the first outcome of a transaction, and returns it.
func (b *book) settle(id int, how string) string {
	b.Lock()
	defer b.Unlock()
	if _, there := b.outcome[id]; !there {
		b.outcome[id] = how
	}
	return b.outcome[id]
}

func (b *book) check(message *rocketmq.MessageView) rocketmq.TransactionResolution {
	id := must.Number(string(message.GetBody()))
	b.Lock()
	if _, there := b.outcome[id]; there {
		b.again[id%ways]++
	}
	b.Unlock()
	if b.isEnding(id) {
		return rocketmq.UNKNOWN
	}
	how := "roll back"
	if id%ways == leftToCommit || id%ways == late {
		how = "commit"
	}
	if b.settle(id, how) == "commit" {
		return rocketmq.COMMIT
	}
	return rocketmq.ROLLBACK
}

func (b *book) isEnding(id int) bool {
	b.Lock()
	defer b.Unlock()
	return b.ending[id]
}

func (b *book) transact(producer rocketmq.Producer, topic string, id int) {
	transaction := producer.BeginTransaction()
	message := &rocketmq.Message{Topic: topic, Body: []byte(strconv.Itoa(id))}
	if _, err := producer.SendWithTransaction(context.Background(), message, transaction); err != nil {
		log.Print(err)
		return
	}
	var err error
	switch id % ways {
	case atOnce:
		b.settle(id, "commit")
		err = transaction.Commit()
	case rolledBack:
		b.settle(id, "roll back")
		err = transaction.RollBack()
	case late:
		b.settle(id, "commit")
		time.Sleep(time.Duration(1500+id%2000) * time.Millisecond)
		err = transaction.Commit()
	case unaware:
		time.Sleep(time.Duration(1500+id%2000) * time.Millisecond)
		b.Lock()
		b.ending[id] = true
		b.Unlock()
		if err = transaction.Commit(); err == nil {
			b.settle(id, "commit")
		}
	}
	if err != nil && id%ways != unaware {
		log.Print(id, " ", err)
	}
}

func (b *book) read(address, topic string) {
	consumer, err := rocketmq.NewSimpleConsumer(config(address, "readers"), rocketmq.WithSimpleAwaitDuration(5*time.Second),
		rocketmq.WithSimpleSubscriptionExpressions(map[string]*rocketmq.FilterExpression{topic: rocketmq.SUB_ALL}))
	must.Succeed(err)
	must.Succeed(consumer.Start())
	for {
		messages, err := consumer.Receive(context.Background(), 32, time.Minute)
		if err != nil {
			continue // nothing has arrived
		}
		for _, each := range messages {
			b.Lock()
			b.delivered[must.Number(string(each.GetBody()))]++
			b.Unlock()
			must.Succeed(consumer.Ack(context.Background(), each))
		}
	}
}

func config(address, group string) *rocketmq.Config {
	return &rocketmq.Config{Endpoint: address, ConsumerGroup: group, Credentials: &credentials.SessionCredentials{}}
}

func main() {
	rocketmq.EnableSsl = false
	address, topic, count, callers := os.Args[1], os.Args[2], must.Number(os.Args[3]), must.Number(os.Args[4])
	b := &book{outcome: map[int]string{}, ending: map[int]bool{}, delivered: map[int]int{}}
	for range 4 {
		go b.read(address, topic)
	}
	producer, err := rocketmq.NewProducer(config(address, ""), rocketmq.WithTopics(topic),
		rocketmq.WithTransactionChecker(&rocketmq.TransactionChecker{Check: b.check}))
	must.Succeed(err)
	must.Succeed(producer.Start())
	ids := make(chan int)
	var all sync.WaitGroup
	for range callers {
		all.Add(1)
		go func() {
			defer all.Done()
			for id := range ids {
				b.transact(producer, topic, id)
			}
		}()
	}
	for id := range count {
		ids <- id
	}
	close(ids)
	all.Wait()
	b.wait()
	b.report()
	os.Exit(0)
}

// wait until every transaction has an outcome and nothing new arrives for ten seconds.
func (b *book) wait() {
	for end, seen, quiet := time.Now().Add(3*time.Minute), 0, 0; quiet < 10 && time.Now().Before(end); time.Sleep(time.Second) {
		b.Lock()
		now := len(b.outcome) + len(b.delivered)
		b.Unlock()
		if quiet++; now != seen {
			seen, quiet = now, 0
		}
	}
}

func (b *book) report() {
	b.Lock()
	defer b.Unlock()
	lost, twice, back := 0, 0, 0
	for id, how := range b.outcome {
		switch times := b.delivered[id]; {
		case how == "commit" && times == 0:
			lost++
		case how == "roll back" && times > 0:
			back++
		case times > 1:
			twice++
		}
	}
	fmt.Printf("outcomes %d delivered %d lost %d twice %d rolled back and delivered %d checked though settled %v\n",
		len(b.outcome), len(b.delivered), lost, twice, back, b.again)
}
