package checkpoint

import (
	"cmp"

	"github.com/smelt-ml/smelt/models/mapped"
)

// arena is memory for derived weights.
type arena struct{ mappings []*mapped.File }

func (a *arena) take(bytes int64) ([]byte, error) {
	m, err := mapped.New(bytes)
	if err != nil {
		return nil, err
	}
	a.mappings = append(a.mappings, m)
	return m.Bytes(), nil
}

func (a *arena) close() error {
	var err error
	for _, m := range a.mappings {
		err = cmp.Or(err, m.Close())
	}
	a.mappings = nil
	return err
}
