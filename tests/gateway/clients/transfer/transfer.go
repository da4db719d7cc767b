package main

import (
	"context"
	"database/sql"
	"log"
	"os"

	rocketmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
	_ "github.com/jackc/pgx/v5/stdlib"
)

func succeed(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func withdraw(books *sql.DB, id string) error {
	work, err := books.Begin()
	succeed(err)
	defer work.Rollback()
	if _, err := work.Exec("UPDATE account SET balance = balance - 100 WHERE owner = 'anna'"); err != nil {
		return err
	}
	if _, err := work.Exec("INSERT INTO transfer VALUES ($1)", id); err != nil {
		return err
	}
	return work.Commit()
}

func main() {
	gateway, bank, id := os.Args[1], os.Args[2], os.Args[3]
	rocketmq.EnableSsl = false
	books, err := sql.Open("pgx", bank)
	succeed(err)
	checker := func(half *rocketmq.MessageView) rocketmq.TransactionResolution {
		var done bool
		if books.QueryRow("SELECT EXISTS (SELECT FROM transfer WHERE id = $1)", half.GetKeys()[0]).Scan(&done) != nil {
			return rocketmq.UNKNOWN // the gateway asks again
		}
		if done {
			return rocketmq.COMMIT
		}
		return rocketmq.ROLLBACK
	}
	producer, err := rocketmq.NewProducer(
		&rocketmq.Config{Endpoint: gateway, Credentials: &credentials.SessionCredentials{}},
		rocketmq.WithTopics("transfers"), rocketmq.WithTransactionChecker(&rocketmq.TransactionChecker{Check: checker}))
	succeed(err)
	succeed(producer.Start())
	defer producer.GracefulStop()
	message := &rocketmq.Message{Topic: "transfers", Body: []byte("100 to ben")}
	message.SetKeys(id)
	transaction := producer.BeginTransaction()
	_, err = producer.SendWithTransaction(context.Background(), message, transaction)
	succeed(err)
	if err := withdraw(books, id); err != nil {
		succeed(transaction.RollBack())
		log.Fatal(err)
	}
	succeed(transaction.Commit())
}
