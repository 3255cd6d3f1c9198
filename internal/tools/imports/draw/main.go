// Draw writes docs/imports.dot and docs/imports.svg: see package imports. It is run in the
// module's root, by make imports.
package main

import (
	"bytes"
	"context"
	"log"
	"os"

	"github.com/smelt-ml/smelt/internal/graphviz"
	"github.com/smelt-ml/smelt/internal/tools/imports"
)

func main() {
	log.SetFlags(0)
	if err := draw(); err != nil {
		log.Fatal(err)
	}
}

func draw() error {
	packages, err := imports.List(".")
	if err != nil {
		return err
	}
	picture, err := imports.Draw(packages)
	if err != nil {
		return err
	}
	var dot bytes.Buffer
	if err := picture.WriteDOT(&dot); err != nil {
		return err
	}
	svg, err := graphviz.Render(context.Background(), dot.Bytes(), "svg")
	if err != nil {
		return err
	}
	if err := os.WriteFile("docs/imports.dot", dot.Bytes(), 0o644); err != nil {
		return err
	}
	return os.WriteFile("docs/imports.svg", svg, 0o644)
}
