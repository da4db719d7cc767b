package main

import (
	"context"
	"log"
	"os"

	"github.com/jackc/pgx/v5"
)

func succeed(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	here := context.Background()
	shop, err := pgx.Connect(here, os.Args[1])
	succeed(err)
	work, err := shop.Begin(here)
	succeed(err)
	_, err = work.Exec(here, "INSERT INTO payment VALUES ($1)", 7)
	succeed(err)
	_, err = work.Exec(here, "SELECT txsaga.send('shop', 'paid', $1::text, key => $2)", `{"payment": 7}`, "7")
	succeed(err)
	succeed(work.Commit(here))
}
