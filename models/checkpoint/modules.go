package checkpoint

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/models"
	"github.com/smelt-ml/smelt/models/hf"
	"github.com/smelt-ml/smelt/models/safetensors"
)

// readModules reads the modules behind a model that embeds texts: the pooling, and the folders of
// the dense layers, of which there are two or none.
func readModules(dir string, c *models.Config) (dense []string, err error) {
	modules, err := hf.LoadModules(dir)
	if err != nil {
		return nil, err
	}
	widths := []int{c.Width}
	for _, m := range modules {
		switch m.Kind {
		case "Transformer", "Normalize":
		case "Pooling":
			c.Pooling = m.Pooling
		case "Dense":
			if m.In != widths[len(widths)-1] {
				return nil, fmt.Errorf("%s: %s takes %d elements, the module before it returns %d", dir, m.Path, m.In, widths[len(widths)-1])
			}
			dense, widths = append(dense, m.Path), append(widths, m.Out)
		default:
			return nil, fmt.Errorf("%s: modules.json has a module of the unsupported kind %q", dir, m.Kind)
		}
	}
	if len(dense) == 0 {
		return nil, nil
	}
	if len(dense) != 2 || widths[2] != c.Width {
		return nil, fmt.Errorf("%s: modules.json has dense layers of widths %v, want two of which the second returns %d", dir, widths, c.Width)
	}
	c.Dense = widths[1]
	return dense, nil
}

// folderFiles are the files of tensors in a folder and its subfolders.
type folderFiles []*safetensors.File

func (files folderFiles) close() error {
	return errors.Join(lo.Map(files, func(f *safetensors.File, _ int) error { return f.Close() })...)
}

func (files folderFiles) intact() error {
	return errors.Join(lo.Map(files, func(f *safetensors.File, _ int) error { return f.Intact() })...)
}

// openFiles returns the tensors of a folder, and those of the modules in its subfolders, named
// after the modules.
func openFiles(dir string, modules []string) (tensors []Tensor, files folderFiles, err error) {
	for _, module := range append([]string{""}, modules...) {
		f, err := safetensors.Open(filepath.Join(dir, module))
		if err != nil {
			return nil, nil, errors.Join(err, files.close())
		}
		files = append(files, f)
		prefix := lo.Ternary(module == "", "", module+".")
		for _, t := range tensorsOf(f) {
			t.Name = prefix + t.Name
			tensors = append(tensors, t)
		}
	}
	return tensors, files, nil
}

func tensorsOf(f *safetensors.File) []Tensor {
	return lo.Map(f.Tensors, func(t safetensors.Tensor, _ int) Tensor {
		shape := lo.Map(t.Shape, func(d int64, _ int) int { return int(d) })
		return Tensor{Name: t.Name, DType: t.DType, Stored: t.Type, Shape: shape, File: t.File, Offset: t.Offset, Data: t.Data}
	})
}
