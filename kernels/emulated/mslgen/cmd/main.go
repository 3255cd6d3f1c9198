// Command mslgen writes the C++ of a folder of .metal sources; see package mslgen.
//
//	go run ./kernels/emulated/mslgen/cmd -sources kernels -output kernels/emulated
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/smelt-ml/smelt/kernels/emulated/mslgen"
)

func main() {
	var p mslgen.Package
	sources := flag.String("sources", "kernels,kernels/published", "folders of the .metal files, from the root of the repository")
	flag.StringVar(&p.Output, "output", "kernels/emulated", "folder of the generated files")
	flag.StringVar(&p.Runtime, "runtime", "kernels/emulated/runtime", "folder of runtime.h and msl/")
	flag.Parse()
	p.Sources = strings.Split(*sources, ",")
	root, err := moduleRoot()
	if err == nil {
		p.Root = root
		err = mslgen.Write(p)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// moduleRoot returns the nearest folder upwards that holds go.mod.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	for err == nil {
		if _, e := os.Stat(filepath.Join(dir, "go.mod")); e == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("mslgen: no go.mod in any folder above")
		}
		dir = up
	}
	return "", err
}
