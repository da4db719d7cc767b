// How fast RocketMQ's official Go client commits transactions: ADDRESS TOPIC CALLERS SECONDS. It prints their number and latencies.

package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"

	"official/must"
)

// once sends a half message and commits it.
func once(producer rocketmq.Producer, topic string) {
	transaction := producer.BeginTransaction()
	message := &rocketmq.Message{Topic: topic, Body: make([]byte, 200)}
	_, err := producer.SendWithTransaction(context.Background(), message, transaction)
	must.Succeed(err)
	must.Succeed(transaction.Commit())
}

func main() {
	rocketmq.EnableSsl = false
	address, topic, callers, seconds := os.Args[1], os.Args[2], must.Number(os.Args[3]), must.Number(os.Args[4])
	commit := &rocketmq.TransactionChecker{Check: func(*rocketmq.MessageView) rocketmq.TransactionResolution { return rocketmq.COMMIT }}
	config := &rocketmq.Config{Endpoint: address, Credentials: &credentials.SessionCredentials{}}
	producer, err := rocketmq.NewProducer(config, rocketmq.WithTopics(topic), rocketmq.WithTransactionChecker(commit))
	must.Succeed(err)
	must.Succeed(producer.Start())
	for range 20 {
		once(producer, topic)
	}
	var all sync.WaitGroup
	var adding sync.Mutex
	var took []time.Duration
	begin := time.Now()
	for range callers {
		all.Add(1)
		go func() {
			defer all.Done()
			var mine []time.Duration
			for time.Since(begin) < time.Duration(seconds)*time.Second {
				from := time.Now()
				once(producer, topic)
				mine = append(mine, time.Since(from))
			}
			adding.Lock()
			defer adding.Unlock()
			took = append(took, mine...)
		}()
	}
	all.Wait()
	rate := float64(len(took)) / time.Since(begin).Seconds()
	slices.Sort(took)
	at := func(share float64) float64 { return took[int(share*float64(len(took)-1))].Seconds() * 1000 }
	fmt.Printf("%.1f\t%.2f\t%.2f\n", rate, at(0.5), at(0.99))
	os.Exit(0)
}
