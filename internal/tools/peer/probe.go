//go:build linux

package main

import (
	"flag"
	"fmt"
	"io"

	"github.com/smelt-ml/smelt/device"
	"github.com/smelt-ml/smelt/internal/tools/limits"
)

// probe prints how fast this machine's memory is read in each way that there is.
func probe(args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("peer probe", flag.ContinueOnError)
	flags.SetOutput(stderr)
	threads := flags.Int("threads", device.DefaultThreads(), "that read at once")
	mib := flags.Int("mib", 1024, "MiB that are read, on small pages and on huge ones")
	rounds := flags.Int("rounds", 5, "how often each way is tried; the highest counts")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *threads < 1 || *mib < 1 || *rounds < 1 {
		return fmt.Errorf("--threads %d --mib %d --rounds %d: want 1 or more", *threads, *mib, *rounds)
	}
	r := limits.NewReader(*mib<<20, *threads)
	defer r.Close()
	p := &printer{w: stdout}
	for _, w := range r.Try(*rounds) {
		p.line("%5.1f GB/s  %v", w.GBs, w)
	}
	return p.err
}
