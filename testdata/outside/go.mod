module example.com/outside

go 1.26.0

require github.com/smelt-ml/smelt v0.0.0

require (
	github.com/agnivade/levenshtein v1.2.1 // indirect
	github.com/dlclark/regexp2/v2 v2.12.0 // indirect
	github.com/dominikbraun/graph v0.23.0 // indirect
	github.com/edsrzf/mmap-go v1.2.0 // indirect
	github.com/fxamacker/cbor/v2 v2.9.1 // indirect
	github.com/rivo/uniseg v0.4.7 // indirect
	github.com/samber/lo v1.53.0 // indirect
	github.com/x448/float16 v0.8.4 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.43.0 // indirect
)

replace github.com/smelt-ml/smelt => ../..
