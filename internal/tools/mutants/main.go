// Command mutants tests the conformance tests of package kernels: it puts one fault into a
// kernel's source, compiles that source alone, and requires that the tests of its family fail.
// Faults of native kernels are put into one set, and must be found by the tests of package
// native. A fault that the tests do not find survives, and is an error.
//
//	go run ./internal/tools/mutants            all of them
//	go run ./internal/tools/mutants -run norm  those whose file or fault matches
//
// The sources themselves are not changed. Every source is first tested without a fault, so that
// a failure is caused by the fault.
package main

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"text/tabwriter"
	"time"
)

func main() {
	pattern := flag.String("run", "", "only mutants whose file and fault match")
	jobs := flag.Int("j", 2, "number of mutants tested at a time")
	flag.Parse()
	match, err := regexp.Compile(*pattern)
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(2)
	}
	chosen := slices.DeleteFunc(slices.Clone(mutants), func(m mutant) bool { return !match.MatchString(m.file + ": " + m.fault) })
	began := time.Now()
	results, err := try(chosen, *jobs)
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "SOURCE\tFAULT\tSECONDS\tCAUGHT BY")
	caught := 0
	for i, r := range results {
		by := "SURVIVES"
		if r.caught {
			by = r.by
			caught++
		}
		fmt.Fprintf(w, "%s\t%s\t%.1f\t%s\n", chosen[i].file, chosen[i].fault, r.took.Seconds(), by)
	}
	w.Flush()
	fmt.Printf("%d of %d caught in %s\n", caught, len(results), time.Since(began).Round(time.Second))
	if caught < len(results) {
		os.Exit(1)
	}
}
