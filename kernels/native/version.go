package native

import "github.com/smelt-ml/smelt/kernels/native/portable"

// Version identifies the sources of the kernels, which all sets are compiled from: what was
// measured of some is no news of others.
const Version = portable.Stamp
