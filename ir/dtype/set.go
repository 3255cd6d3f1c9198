package dtype

// Set is a set of types.
type Set uint64

// SetOf returns the set of the given types.
func SetOf(types ...Type) Set {
	var s Set
	for _, t := range types {
		s |= 1 << t
	}
	return s
}

// Has reports whether t is in the set.
func (s Set) Has(t Type) bool { return s>>t&1 == 1 }
