package fusion

import "github.com/smelt-ml/smelt/ir"

// RepeatKVPair merges repeat_kv of K and of V into one dispatch:
//
//	k = repeat_kv(cache_read(cache))                     [B·Smax, H, D]
//	v = repeat_kv(cache_read(cache))                     [B·Smax, H, D]
//
// becomes
//
//	k, v = repeat_kv_pair(cache_read(cache), cache_read(cache))
//
// It serves attention that kv_replication_elimination does not match; fused attention
// needs no copies.
func RepeatKVPair() *Rule {
	cache, lens, table := Any(), Any(), Any()
	readK, readV := Op(ir.OpCacheRead, cache, lens, table), Op(ir.OpCacheRead, cache, lens, table)
	k, v := Op(ir.OpRepeatKV, readK), Op(ir.OpRepeatKV, readV)

	return &Rule{
		Name:   "repeat_kv_pair",
		Doc:    "repeat the keys and the values of a cache in one dispatch",
		Anchor: k,
		Joins:  []*Pat{v},
		Yields: []*Pat{k, v},
		Where: func(m Match) bool {
			return m[readK].Attr == ir.CacheReadAttr{Values: false} && m[readV].Attr == ir.CacheReadAttr{Values: true} &&
				m[k].Attr == m[v].Attr
		},
		Build: func(e *Emitter, m Match) []*ir.Value {
			var reads [2]*ir.Value
			for i, read := range []*ir.Value{m[readK], m[readV]} {
				reads[i] = e.EmitAs(read.Type.DType, ir.OpCacheRead, read.Attr, m[cache], m[lens], m[table])
			}
			out := e.Emit(ir.OpRepeatKVPair, m[k].Attr, reads[0], reads[1])
			return []*ir.Value{e.Select(out, 0), e.Select(out, 1)}
		},
	}
}
