// Continue goes on with a text from where each line typed leaves it.
package main

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"os"

	"github.com/smelt-ml/smelt"
)

func main() {
	l, err := smelt.Load(os.Args[1], smelt.Options{})
	check(err)
	s, err := l.NewSession()
	check(err)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		for token, err := range s.Generate(context.Background(), lines.Text(), smelt.Generation{N: 40, Stop: []string{"\n"}}) {
			check(err)
			fmt.Print(token.Text)
		}
		fmt.Println()
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
