// Server answers requests in the form of OpenAI's API, beside pages of its own.
package main

import (
	"fmt"
	"log"
	"net/http"
	"os"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/serve"
)

func main() {
	l, err := smelt.Load(os.Args[1], smelt.Options{})
	check(err)
	s := serve.New(serve.Options{})
	e, err := l.NewEngine(smelt.EngineOptions{Metrics: s.Metrics("story")})
	check(err)
	check(s.Add("story", e))
	http.Handle("/ai/", http.StripPrefix("/ai", s))
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "a page of one's own")
	})
	check(http.ListenAndServe(os.Args[2], nil))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
