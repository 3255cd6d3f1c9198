package constrain

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// references resolves $ref within one document.
type references struct {
	root            *value
	draft           int // 4, 6, 7, 2019 or 2020; initially the draft of documents without $schema
	recursiveAnchor bool
	*budget
	parents map[*value]parent
	base    map[*value]*url.URL // of schemas with an identifier
	byID    map[string]*value   // by absolute identifier without a fragment
	anchors map[string]*value   // by identifier#name
}

type parent struct {
	v   *value
	key string
}

func newReferences(root *value, b *budget) *references {
	r := &references{budget: b, root: root, draft: 2020, parents: map[*value]parent{}, base: map[*value]*url.URL{}, byID: map[string]*value{}, anchors: map[string]*value{}}
	if d := root.get("$schema"); d != nil && d.kind == isString {
		for _, x := range drafts {
			if strings.Contains(d.text, x.name) {
				r.draft = x.number
			}
		}
	}
	r.base[root] = &url.URL{}
	r.byID[""] = root
	r.walk(root, oneSchema, &url.URL{})
	return r
}

// weight returns the cost of joining a reference to a base.
func weight(base *url.URL) int {
	return 64 + len(base.Host) + len(base.Path) + len(base.RawQuery) + len(base.Opaque)
}

// drafts are the drafts that $schema can name; drafts 3 and 5 are read as draft 4.
var drafts = []struct {
	name   string
	number int
}{{"draft-03", 4}, {"draft-04", 4}, {"draft-05", 4}, {"draft-06", 6}, {"draft-07", 7}, {"2019-09", 2019}}

// modern reports whether keywords beside $ref are read: from 2019-09 on.
func (r *references) modern() bool { return r.draft >= 2019 }

// schemaKeys are the keywords whose values are or contain schemas, by the kind of the values. An
// identifier in the value of any other keyword names nothing, although a pointer reaches it.
var schemaKeys = map[string]holder{
	"additionalItems": oneSchema, "additionalProperties": oneSchema, "unevaluatedItems": oneSchema, "unevaluatedProperties": oneSchema,
	"contains": oneSchema, "propertyNames": oneSchema, "not": oneSchema, "if": oneSchema, "then": oneSchema, "else": oneSchema, "contentSchema": oneSchema,
	"items": oneSchema, "prefixItems": schemaList, "allOf": schemaList, "anyOf": schemaList, "oneOf": schemaList,
	"properties": schemaDictionary, "patternProperties": schemaDictionary, "definitions": schemaDictionary, "$defs": schemaDictionary,
	"dependencies": schemaDictionary, "dependentSchemas": schemaDictionary,
}

type holder uint8

const (
	noSchema holder = iota
	oneSchema
	schemaList
	schemaDictionary
)

// walk records the parents of all values within v, and the identifiers of the schemas among them.
func (r *references) walk(v *value, kind holder, base *url.URL) {
	if kind == oneSchema && v.kind == isArray {
		kind = schemaList // items before 2020-12
	}
	// The older drafts ignore siblings of $ref.
	if ref := v.get("$ref"); kind == oneSchema && v.kind == isObject && (r.modern() || ref == nil || ref.kind != isString) {
		base = r.identify(v, base)
	}
	for i := range v.items {
		key, within := strconv.Itoa(i), noSchema
		if v.kind == isObject {
			key = v.keys[i]
		}
		switch {
		case kind == oneSchema && since[key] <= r.draft:
			within = schemaKeys[key]
		case kind == schemaList && v.kind == isArray || kind == schemaDictionary && v.kind == isObject:
			within = oneSchema
		}
		r.parents[&v.items[i]] = parent{v, key}
		r.walk(&v.items[i], within, base)
	}
}

// identify records the identifiers of a schema and returns the base of those within it.
func (r *references) identify(v *value, base *url.URL) *url.URL {
	for _, key := range []string{"$id", "id"} {
		id := v.get(key)
		if id == nil || id.kind != isString || key == "id" && r.modern() {
			continue
		}
		r.spend(len(id.text) + weight(base))
		u, err := base.Parse(id.text)
		if err != nil {
			continue
		}
		if name := u.Fragment; name != "" && strings.HasPrefix(id.text, "#") {
			r.anchors[base.String()+"#"+name] = v
			continue
		}
		u.Fragment = ""
		base = u
		r.base[v] = u
		if _, taken := r.byID[u.String()]; !taken {
			r.byID[u.String()] = v
		}
		break
	}
	for _, key := range []string{"$anchor", "$dynamicAnchor"} {
		if a := v.get(key); a != nil && a.kind == isString {
			r.spend(weight(base))
			r.anchors[base.String()+"#"+a.text] = v
		}
	}
	if a := v.get("$recursiveAnchor"); a != nil && a.kind == isTrue {
		r.recursiveAnchor = true
	}
	return base
}

// path returns the JSON pointer of v in the document.
func (r *references) path(v *value) string {
	var parts []string
	for v != r.root {
		p, ok := r.parents[v]
		if !ok {
			break
		}
		parts = append(parts, "/"+strings.NewReplacer("~", "~0", "/", "~1").Replace(p.key))
		v = p.v
	}
	slices.Reverse(parts)
	path := strings.Join(parts, "")
	r.spend(derivation*(1+len(parts)) + len(path))
	return path
}

func (r *references) resolve(from *value, ref string) (*value, error) {
	base := r.base[r.root]
	for v := from; ; {
		if b, ok := r.base[v]; ok {
			base = b
			break
		}
		p, ok := r.parents[v]
		if !ok {
			break
		}
		v = p.v
	}
	r.spend(len(ref) + weight(base))
	u, err := base.Parse(ref)
	if err != nil {
		return nil, fmt.Errorf("%q is not a URI reference", ref)
	}
	fragment := u.Fragment
	u.Fragment, u.RawFragment = "", ""
	at := r.byID[u.String()]
	if at == nil {
		return nil, fmt.Errorf("%q is not in this document", ref)
	}
	if fragment == "" {
		return at, nil
	}
	if !strings.HasPrefix(fragment, "/") {
		if a := r.anchors[u.String()+"#"+fragment]; a != nil {
			return a, nil
		}
		return nil, fmt.Errorf("%q matches nothing in this document", ref)
	}
	for _, part := range strings.Split(fragment[1:], "/") {
		part = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
		var next *value
		if at.kind == isArray {
			if i, err := strconv.Atoi(part); err == nil && i >= 0 && i < len(at.items) {
				next = &at.items[i]
			}
		} else {
			next = at.get(part)
		}
		if next == nil {
			return nil, fmt.Errorf("%q matches nothing in this document", ref)
		}
		at = next
	}
	return at, nil
}
