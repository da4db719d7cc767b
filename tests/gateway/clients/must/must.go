// Package must ends a program that can't go on.
package must

import (
	"log"
	"strconv"
)

// Succeed ends the program if there is an error.
func Succeed(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// Number reads a number.
func Number(text string) int {
	found, err := strconv.Atoi(text)
	Succeed(err)
	return found
}
