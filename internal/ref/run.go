package ref

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/sym"
)

// Env is the environment of a run: sizes, inputs, weights and caches.
type Env struct {
	Sizes  sym.Sizes
	Inputs map[string][]int32 // per-step inputs by name
	// Weight returns the elements of a weight, which Run does not change.
	Weight func(name string) ([]float64, error)
	Caches []*Cache // by layer, with its recurrent states; writes happen in place

	// RoundCache rounds writes to the cache to its element type. By default they are exact.
	RoundCache bool
	// Watch, if set, receives every tensor as it is computed.
	Watch func(v *ir.Value, t *Tensor)
	// Followed, if set, is the device to follow op by op.
	Followed *Followed
}

// Tensor is a tensor under the sizes of one run, row-major. Data holds floats,
// Ints int32.
type Tensor struct {
	Shape []int
	Data  []float64
	Ints  []int32
	// Slack bounds the error of each element on [Env.Followed], for its products and embeddings;
	// else nil.
	Slack []float64
}

// last returns the innermost extent.
func (t *Tensor) last() int { return t.Shape[len(t.Shape)-1] }

// rows returns the product of the other extents.
func (t *Tensor) rows() int {
	n := 1
	for _, d := range t.Shape[:len(t.Shape)-1] {
		n *= d
	}
	return n
}

// row returns the i-th run of the innermost axis.
func (t *Tensor) row(i int) []float64 { return t.Data[i*t.last() : (i+1)*t.last()] }

// ints returns the i-th run of integers of the innermost axis.
func (t *Tensor) ints(i int) []int32 { return t.Ints[i*t.last() : (i+1)*t.last()] }

// Outputs holds the results of a graph by name.
type Outputs struct {
	Tensors map[string]*Tensor
	Caches  map[string]*Cache // those of Env, as the graph left them
	States  map[string]*State // likewise
}

// result is the result of one value: a tensor, a cache, a state, or several of these.
type result struct {
	tensor *Tensor
	cache  *Cache
	state  *State
	elems  []result
}

// run is one execution of a graph.
type run struct {
	*Env
	results  []result           // by ID
	matrices map[*ir.Value]bool // weights that are read in stored form
}

// maxElements bounds the elements of one value, to 8 GiB.
const maxElements = 1 << 30

// Run verifies and executes a graph. After an error the caches may hold some of
// the step's writes.
func Run(f *ir.Func, env Env) (*Outputs, error) {
	if err := f.Verify(); err != nil {
		return nil, err
	}
	r := &run{Env: &env, results: make([]result, f.MaxID()), matrices: f.Matrices()}
	uses := f.Uses()
	for _, v := range f.Values {
		if err := r.step(v); err != nil {
			return nil, fmt.Errorf("%s: running %s: %w", f.Name, v.LongString(), err)
		}
		for _, a := range v.Args { // frees operands after their last use
			if uses[a.ID]--; uses[a.ID] == 0 {
				r.results[a.ID] = result{}
			}
		}
	}
	out := &Outputs{Tensors: make(map[string]*Tensor), Caches: make(map[string]*Cache), States: make(map[string]*State)}
	for _, named := range f.Results {
		switch res := r.results[named.Value.ID]; {
		case res.tensor != nil:
			out.Tensors[named.Name] = res.tensor
		case res.cache != nil:
			out.Caches[named.Name] = res.cache
		case res.state != nil:
			out.States[named.Name] = res.state
		default:
			return nil, fmt.Errorf("%s: result %q is a tuple", f.Name, named.Name)
		}
	}
	return out, nil
}

func (r *run) step(v *ir.Value) error {
	rule := rules[v.Op]
	if rule == nil {
		return errors.New("the interpreter has no rule for the op")
	}
	res, err := rule(r, v)
	if err != nil {
		return err
	}
	if t := res.tensor; t != nil {
		if shape, err := r.shape(v.Type.Shape); err != nil {
			return err
		} else if !slices.Equal(shape, t.Shape) {
			return fmt.Errorf("the result has shape %v, want %v", t.Shape, shape)
		}
		if r.Watch != nil {
			r.Watch(v, t)
		}
	}
	if res, err = r.follow(v, res); err != nil {
		return err
	}
	r.results[v.ID] = res
	return nil
}

// follow replaces a result by the device's.
func (r *run) follow(v *ir.Value, res result) (result, error) {
	switch {
	case r.Followed == nil || v.Op.IsLeaf():
	case res.tensor != nil && r.Followed.Computed != nil:
		if got, err := r.Followed.Computed(v, res.tensor); got != nil || err != nil {
			return result{tensor: got}, err
		}
	case res.cache != nil && r.Followed.Written != nil:
		return res, r.Followed.Written(v, res.cache)
	}
	return res, nil
}

// shape evaluates symbolic extents.
func (r *run) shape(s ir.Shape) ([]int, error) {
	shape, n := make([]int, len(s)), int64(1)
	for i, d := range s {
		extent := d.Eval(&r.Sizes)
		if extent < 0 || extent > maxElements {
			return nil, fmt.Errorf("extent %s is %d", d, extent)
		}
		if n *= extent; n > maxElements {
			return nil, fmt.Errorf("%s has more than %d elements", s, maxElements)
		}
		shape[i] = int(extent)
	}
	return shape, nil
}

// empty returns a zero tensor of a value's type.
func (r *run) empty(t ir.Type) (*Tensor, error) {
	shape, err := r.shape(t.Shape)
	if err != nil {
		return nil, err
	}
	n := 1
	for _, d := range shape {
		n *= d
	}
	return &Tensor{Shape: shape, Data: make([]float64, n)}, nil
}

// tensor returns operand i, which Verify has checked to be a tensor.
func (r *run) tensor(v *ir.Value, i int) *Tensor { return r.results[v.Args[i].ID].tensor }

// optional returns operand i, or nil if v has fewer.
func (r *run) optional(v *ir.Value, i int) *Tensor {
	if i >= len(v.Args) {
		return nil
	}
	return r.tensor(v, i)
}

func (r *run) cache(v *ir.Value, i int) *Cache { return r.results[v.Args[i].ID].cache }

// each allocates the result of v and calls fill with it.
func (r *run) each(v *ir.Value, fill func(out *Tensor) error) (result, error) {
	out, err := r.empty(v.Type)
	if err != nil {
		return result{}, err
	}
	return result{tensor: out}, fill(out)
}

// SizesFor returns the sizes of a step by its inputs. contextBound is Smax, at least the longest
// context.
func SizesFor(inputs map[string][]int32, contextBound int) sym.Sizes {
	var s sym.Sizes
	s[sym.T] = int64(len(inputs[sym.Tokens]))
	s[sym.B] = int64(len(inputs[sym.ContextLens]))
	s[sym.R] = int64(len(inputs[sym.LogitRows]))
	if s[sym.B] > 0 {
		s[sym.NB] = int64(len(inputs[sym.BlockTable])) / s[sym.B]
	}
	s[sym.Smax] = int64(contextBound)
	s[sym.C] = int64(len(inputs[sym.Copies]) / 2)
	return s
}

// negInf is the score of masked keys.
var negInf = math.Inf(-1)
