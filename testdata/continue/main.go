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
	m, err := smelt.Open(os.Args[1], "")
	check(err)
	p, err := m.Compile(smelt.DefaultOptions())
	check(err)
	l, err := p.Load(smelt.Device{})
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
