package plan

import "github.com/smelt-ml/smelt/kernels"

// typeConstants are the function constants that tell the kernels which decode weights the
// types of their arguments, by the names of both. These kernels read a matrix in another
// order than the file's as well.
var typeConstants = map[string]map[string]string{
	"linear_vec": linearTypes, "linear_mat": linearTypes, "norm_linear_mat": linearTypes, "embed": {"table": "fc_type"},
}

var linearTypes = map[string]string{"w0": "fc_type0", "w1": "fc_type1", "w2": "fc_type2"}

// TellsTypes reports whether kernels of a family are told the types of the weights that they read.
func TellsTypes(family string) bool { return typeConstants[family] != nil }

// TypeOf returns the function constant that has the type of a weight that a dispatch binds;
// nil where there is none.
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
