package plan

import "github.com/smelt-ml/smelt/kernels"

// typeConstants maps, for each family of kernels that decodes weights, the name of an argument to
// the function constant that holds its type. These kernels support other layouts of a matrix than
// the file's as well.
var typeConstants = map[string]map[string]string{
	"linear_vec": linearTypes, "linear_mat": linearTypes, "norm_linear_mat": linearTypes, "embed": {"table": "fc_type"},
}

var linearTypes = map[string]string{"w0": "fc_type0", "w1": "fc_type1", "w2": "fc_type2", "w3": "fc_type3"}

// TellsTypes reports whether kernels of a family have function constants for the types of weights.
func TellsTypes(family string) bool { return typeConstants[family] != nil }

// TypeOf returns the dispatch's function constant for the type of the weight at a binding, or nil.
func (d *Dispatch) TypeOf(at *Binding) *Constant {
	k, ok := kernels.Lookup(d.Kernel)
	if !ok {
		return nil
	}
	arg, _ := k.Arg(int(at.Index))
	c, ok := k.Constant(typeConstants[k.Family][arg.Name])
	for i := range d.Constants {
		if ok && int(d.Constants[i].Index) == c.Index {
			return &d.Constants[i]
		}
	}
	return nil
}
