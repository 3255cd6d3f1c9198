package constrain

import (
	"slices"
	"strings"
)

// assertion is a keyword's constraint as two shapes: of the values that satisfy it, and of those
// that violate it.
type assertion struct{ holds, fails func() *shape }

// keyword is a keyword's reader: it reads the value v of its keyword in schema s. A group of
// keywords that depend on each other is read by the first of them that the schema has, in table
// order.
type keyword struct {
	names []string
	read  func(c *schemas, s *value, name string, v *value) assertion
}

// keywords are all keywords that restrict a value. Others are annotations.
var keywords []keyword

// refused are keywords that restrict a value and are not supported.
var refused = map[string]string{
	"$dynamicRef": "is not supported",
	"extends":     "is of draft 3, which is not supported", "disallow": "is of draft 3, which is not supported", "divisibleBy": "is of draft 3, which is not supported",
}

// since holds the first draft of each keyword that draft 4 lacks.
var since = map[string]int{
	"const": 6, "contains": 6, "propertyNames": 6, "if": 7, "then": 7, "else": 7, "contentEncoding": 7, "contentMediaType": 7, "contentSchema": 2019,
	"dependentRequired": 2019, "dependentSchemas": 2019, "minContains": 2019, "maxContains": 2019,
	"unevaluatedItems": 2019, "unevaluatedProperties": 2019, "$recursiveRef": 2019, "prefixItems": 2020, "$dynamicRef": 2020,
}

// get returns the value of a keyword if the document's draft defines it.
func (c *schemas) get(s *value, name string) *value {
	if since[name] > c.refs.draft {
		return nil
	}
	return s.get(name)
}

func init() { // in init, since the readers refer to the table
	keywords = []keyword{
		{[]string{"type"}, readType},
		{[]string{"enum", "const"}, readEnum},
		{[]string{"minimum"}, readBound}, {[]string{"maximum"}, readBound}, {[]string{"exclusiveMinimum"}, readBound}, {[]string{"exclusiveMaximum"}, readBound},
		{[]string{"multipleOf"}, readMultiple},
		{[]string{"minLength"}, readLength}, {[]string{"maxLength"}, readLength},
		{[]string{"pattern"}, readPattern}, {[]string{"format"}, readFormat},
		{[]string{"minItems"}, readItemCount}, {[]string{"maxItems"}, readItemCount}, {[]string{"uniqueItems"}, readUnique},
		{[]string{"items", "prefixItems", "additionalItems"}, readItems}, {[]string{"contains", "minContains", "maxContains"}, readContains},
		{[]string{"minProperties"}, readPropertyCount}, {[]string{"maxProperties"}, readPropertyCount},
		{[]string{"properties", "patternProperties", "additionalProperties"}, readProperties}, {[]string{"unevaluatedProperties"}, readUnevaluated}, {[]string{"unevaluatedItems"}, readUnevaluated},
		{[]string{"required"}, readRequired}, {[]string{"propertyNames"}, readNames},
		{[]string{"dependencies"}, readDependencies}, {[]string{"dependentRequired"}, readDependencies}, {[]string{"dependentSchemas"}, readDependencies},
		{[]string{"allOf"}, readAll}, {[]string{"anyOf"}, readAny}, {[]string{"oneOf"}, readOne}, {[]string{"not"}, readNot},
		{[]string{"if", "then", "else"}, readIf}, {[]string{"$ref", "$recursiveRef"}, readRef},
	}
}

// schema returns the shape of the values that match s or, if negative, of those that do not.
func (c *schemas) schema(s *value, negative bool) *shape {
	if s.kind == isTrue && !negative || s.kind == isFalse && negative {
		return c.anything
	}
	if s.kind == isFalse || s.kind == isTrue {
		return &shape{}
	}
	if s.kind != isObject {
		c.refuse(s, "", "a schema is an object or a boolean")
	}
	result := c.anything
	if negative {
		result = &shape{}
	}
	only := s.get("$ref") != nil && !c.refs.modern() // the older drafts ignore siblings of $ref
	if only && len(s.keys) > 1 {
		for _, k := range s.keys {
			if k != "$ref" && isKeyword(k) {
				c.note("#" + c.refs.path(s) + "/" + k + ": ignored, as it stands beside $ref")
			}
		}
	}
	c.spend(derivation * (len(keywords) + len(s.keys)))
	for _, key := range s.keys {
		if from := since[key]; from > c.refs.draft {
			c.note("#" + c.refs.path(s) + "/" + key + ": ignored, as the schema's draft does not define it")
		} else if from == 7 && c.refs.draft == 7 && strings.HasPrefix(key, "content") { // later drafts only annotate with it
			c.note("#" + c.refs.path(s) + "/" + key + ": ignored, as strings are not decoded")
		} else if why, ok := refused[key]; ok {
			c.refuse(s, key, why)
		}
	}
	for _, k := range keywords {
		if only && k.names[0] != "$ref" {
			continue
		}
		for _, name := range k.names {
			v := c.get(s, name)
			if v == nil {
				continue
			}
			a := k.read(c, s, name, v)
			if negative {
				result = c.either(result, a.fails())
			} else {
				result = c.both(result, a.holds())
			}
			break
		}
	}
	return result
}

func isKeyword(name string) bool {
	return slices.ContainsFunc(keywords, func(k keyword) bool { return slices.Contains(k.names, name) })
}

func (c *schemas) note(text string) {
	if !c.noted[text] {
		c.noted[text] = true
		c.notes = append(c.notes, text)
	}
}

// but returns a builder of the shape of all values, restricted by change.
func (c *schemas) but(change func(s *shape)) func() *shape {
	return func() *shape {
		s := *c.anything
		change(&s)
		return &s
	}
}

func shapeWith(change func(s *shape)) func() *shape {
	return func() *shape {
		s := &shape{}
		change(s)
		return s
	}
}

func (c *schemas) numeric(r re) assertion {
	return assertion{
		c.but(func(s *shape) { s.number = r }),
		shapeWith(func(s *shape) { s.number = c.num.except(r) }),
	}
}

func (c *schemas) textual(r re) assertion {
	return assertion{
		c.but(func(s *shape) { s.text = texts{expr: r} }),
		shapeWith(func(s *shape) { s.text = c.exceptTexts(texts{expr: r}) }),
	}
}

func readType(c *schemas, s *value, name string, v *value) assertion {
	list := []value{*v}
	if v.kind == isArray {
		list = v.items
	}
	holds := &shape{}
	fails := *c.anything
	integer := false
	for _, t := range list {
		switch t.text {
		case "null":
			holds.null, fails.null = true, false
		case "boolean":
			holds.no, holds.yes, fails.no, fails.yes = true, true, false, false
		case "number":
			holds.number, fails.number = c.num.any, reNone
		case "integer":
			integer = true
		case "string":
			holds.text, fails.text = c.anything.text, texts{}
		case "array":
			holds.arrays, fails.arrays = c.anything.arrays, nil
		case "object":
			holds.objects, fails.objects = c.anything.objects, nil
		default:
			c.refuse(s, name, "unknown type "+t.text)
		}
	}
	if integer && holds.number == reNone {
		holds.number, fails.number = c.num.integer, c.num.except(c.num.whole)
	}
	return assertion{func() *shape { return holds }, func() *shape { return &fails }}
}

func readEnum(c *schemas, s *value, name string, v *value) assertion {
	list := []*value{v}
	if name == "enum" {
		if v.kind != isArray {
			c.refuse(s, name, "want an array")
		}
		list = list[:0]
		c.checkNames(v)
		for i := range v.items {
			list = append(list, &v.items[i])
		}
	}
	also := (*value)(nil)
	if name == "enum" {
		also = c.get(s, "const")
	}
	return assertion{func() *shape {
		shapes := make([]*shape, len(list))
		for i, item := range list {
			shapes[i] = c.constant(item)
		}
		result := c.either(shapes...)
		if also != nil {
			result = c.both(result, c.constant(also))
		}
		return result
	}, func() *shape {
		result := c.anything
		var words []string
		for _, item := range list {
			if item.kind == isString {
				words = append(words, item.text)
				continue
			}
			result = c.both(result, c.differs(item))
		}
		if len(words) > 0 {
			result = c.both(result, c.but(func(s *shape) { s.text = c.exceptTexts(texts{words: words}) })())
		}
		if also != nil {
			result = c.either(result, c.differs(also))
		}
		return result
	}}
}

func (c *schemas) decimal(v *value) decimal {
	d, err := parseDecimal(v.text)
	if err != nil {
		c.refuse(v, "", err.Error())
	}
	return d
}

// constant returns the shape of one value.
func (c *schemas) constant(v *value) *shape {
	s := &shape{}
	switch v.kind {
	case isNull:
		s.null = true
	case isFalse:
		s.no = true
	case isTrue:
		s.yes = true
	case isNumber:
		s.number = c.num.written(c.decimal(v))
	case isString:
		s.text.words = []string{v.text}
	case isArray:
		c.spend(derivation + len(v.items))
		a := &arrayShape{min: len(v.items), max: len(v.items)}
		for i := range v.items {
			a.prefix = append(a.prefix, c.conj(demand{&v.items[i], mustBe}))
		}
		s.arrays = []*arrayShape{a}
	case isObject:
		c.spend(derivation + len(v.items))
		o := &objectShape{max: unlimited, names: c.pool.text}
		g := &propertyGroup{additional: &never}
		for i, k := range v.keys {
			if v.last(k) != i {
				continue
			}
			g.names, g.values = append(g.names, k), append(g.values, demand{&v.items[i], mustBe})
			o.required = append(o.required, k)
		}
		o.groups = []*propertyGroup{g}
		s.objects = []*objectShape{o}
	}
	return s
}

// differs returns the shape of all values but one.
func (c *schemas) differs(v *value) *shape {
	s := *c.anything
	switch v.kind {
	case isNull:
		s.null = false
	case isFalse:
		s.no = false
	case isTrue:
		s.yes = false
	case isNumber:
		s.number = c.num.except(c.num.equal(c.decimal(v)))
	case isString:
		s.text = c.exceptTexts(texts{words: []string{v.text}})
	case isArray:
		n := len(v.items)
		if n > maxBranches {
			panic(limit("the negation of an array of %d items", n))
		}
		s.arrays = []*arrayShape{{min: n + 1, max: unlimited}}
		if n > 0 {
			s.arrays = append(s.arrays, &arrayShape{max: n - 1})
		}
		for i := range v.items {
			a := &arrayShape{min: i + 1, max: unlimited, prefix: make([]conjID, i+1)}
			a.prefix[i] = c.conj(demand{&v.items[i], mustDiffer})
			s.arrays = append(s.arrays, a)
		}
	case isObject:
		s.objects = nil
		c.spend(derivation * len(v.keys))
		for i, k := range v.keys {
			s.objects = append(s.objects, c.forbids(k), c.hasValue(k, demand{&v.items[i], mustDiffer}))
		}
		more := c.anyObject()
		for i, k := range v.keys {
			if v.last(k) == i {
				more.required = append(more.required, k)
			}
		}
		more.min = len(more.required) + 1
		s.objects = append(s.objects, more)
	}
	c.checkBranches(&s)
	return &s
}

func (c *schemas) anyObject() *objectShape { return &objectShape{max: unlimited, names: c.pool.text} }

func (c *schemas) forbids(name string) *objectShape {
	o := c.anyObject()
	o.groups = []*propertyGroup{c.group(name, never)}
	return o
}

func readBound(c *schemas, s *value, name string, v *value) assertion {
	if v.kind == isTrue || v.kind == isFalse { // draft 4: modifies minimum or maximum
		return assertion{func() *shape { return c.anything }, func() *shape { return &shape{} }}
	}
	if v.kind != isNumber {
		c.refuse(s, name, "want a number")
	}
	d := c.decimal(v)
	beyond := strings.HasPrefix(name, "exclusive")
	if strings.HasSuffix(name, "inimum") {
		e := s.get("exclusiveMinimum")
		return c.numeric(c.num.atLeast(d, beyond || e != nil && e.kind == isTrue))
	}
	e := s.get("exclusiveMaximum")
	return c.numeric(c.num.atMost(d, beyond || e != nil && e.kind == isTrue))
}

func readMultiple(c *schemas, s *value, name string, v *value) assertion {
	if v.kind != isNumber {
		c.refuse(s, name, "want a number")
	}
	r, err := c.num.multiples(c.decimal(v))
	if err != nil {
		c.refuse(s, name, err.Error())
	}
	return c.numeric(r)
}

// size returns the value of a keyword that is a non-negative count.
func (c *schemas) size(s *value, name string, v *value) int {
	n := v.count()
	if n < 0 {
		c.refuse(s, name, "want a whole number of at least 0")
	}
	return n
}

func readLength(c *schemas, s *value, name string, v *value) assertion {
	n := c.size(s, name, v)
	if name == "minLength" {
		return c.textual(c.pool.repeat(c.pool.char, n, unlimited))
	}
	return c.textual(c.pool.repeat(c.pool.char, 0, n))
}

// pattern returns the expression of a search for text. v is the pattern, or the schema that has it,
// and names the path in errors.
func (c *schemas) pattern(v *value, keyword, text string) re {
	if r, ok := c.patterns[text]; ok {
		return r
	}
	e, err := parseExpression(text)
	if err != nil {
		panic(refusal{path: "#" + c.refs.path(v), keyword: keyword, why: err.Error()})
	}
	r, err := c.pool.search(e)
	if err != nil {
		panic(refusal{path: "#" + c.refs.path(v), keyword: keyword, why: err.Error()})
	}
	c.patterns[text] = r
	return r
}

func readPattern(c *schemas, s *value, name string, v *value) assertion {
	if v.kind != isString {
		c.refuse(s, name, "want a string")
	}
	return c.textual(c.pattern(v, name, v.text))
}

func readFormat(c *schemas, s *value, name string, v *value) assertion {
	if v.kind != isString {
		c.refuse(s, name, "want a string")
	}
	f, ok := formats[v.text]
	switch {
	case !ok:
		c.note("#" + c.refs.path(s) + "/format: " + v.text + " is not defined by JSON Schema and is not checked")
		return assertion{func() *shape { return c.anything }, func() *shape { return &shape{} }}
	case f.expr == "":
		c.refuse(s, name, "the format "+v.text+" is not supported")
	}
	return c.textual(c.num.formatted(&f))
}

func (c *schemas) arrayOnly(holds *arrayShape, fails func() []*arrayShape) assertion {
	return assertion{
		c.but(func(s *shape) { s.arrays = []*arrayShape{holds} }),
		shapeWith(func(s *shape) { s.arrays = fails() }),
	}
}

func readItemCount(c *schemas, s *value, name string, v *value) assertion {
	n := c.size(s, name, v)
	if name == "minItems" {
		return c.arrayOnly(&arrayShape{min: n, max: unlimited}, func() []*arrayShape {
			if n == 0 {
				return nil
			}
			return []*arrayShape{{max: n - 1}}
		})
	}
	return c.arrayOnly(&arrayShape{max: n}, func() []*arrayShape { return []*arrayShape{{min: n + 1, max: unlimited}} })
}

func readUnique(c *schemas, s *value, name string, v *value) assertion {
	if v.kind == isTrue {
		return c.arrayOnly(&arrayShape{max: unlimited, unique: s}, func() []*arrayShape {
			c.refuse(s, name, "cannot be negated")
			return nil
		})
	}
	return assertion{func() *shape { return c.anything }, func() *shape { return &shape{} }}
}

func readItems(c *schemas, s *value, _ string, _ *value) assertion {
	items, prefix, additional := s.get("items"), c.get(s, "prefixItems"), s.get("additionalItems")
	if items != nil && items.kind == isArray { // drafts before 2020-12
		prefix, items = items, additional
	}
	a := &arrayShape{max: unlimited}
	var fails []*arrayShape
	negative := func() []*arrayShape { return fails }
	if prefix != nil {
		if prefix.kind != isArray {
			c.refuse(s, "prefixItems", "want an array")
		}
		if len(prefix.items) > maxBranches {
			panic(limit("%d items by place", len(prefix.items)))
		}
		for i := range prefix.items {
			a.prefix = append(a.prefix, c.conj(demand{&prefix.items[i], mustMatch}))
			f := &arrayShape{min: i + 1, max: unlimited, prefix: make([]conjID, i+1)}
			f.prefix[i] = c.conj(demand{&prefix.items[i], mustNot})
			fails = append(fails, f)
		}
	}
	if items != nil {
		a.items = c.conj(demand{items, mustMatch})
		negative = func() []*arrayShape {
			switch {
			case items.kind == isTrue:
			case len(a.prefix) == 0:
				return append(fails, &arrayShape{max: unlimited, contains: []contained{{value: c.conj(demand{items, mustNot}), min: 1, max: unlimited}}})
			case items.kind == isFalse:
				return append(fails, &arrayShape{min: len(a.prefix) + 1, max: unlimited})
			default:
				c.refuse(s, "items", "behind items by place cannot be negated")
			}
			return fails
		}
	}
	return c.arrayOnly(a, negative)
}

func readContains(c *schemas, s *value, name string, v *value) assertion {
	if name != "contains" {
		return assertion{func() *shape { return c.anything }, func() *shape { return &shape{} }}
	}
	d := contained{value: c.conj(demand{v, mustMatch}), not: c.conj(demand{v, mustNot}), min: 1, max: unlimited}
	if n := c.get(s, "minContains"); n != nil {
		d.min = c.size(s, "minContains", n)
	}
	if n := c.get(s, "maxContains"); n != nil {
		d.max = c.size(s, "maxContains", n)
	}
	with := func(min, max int) []*arrayShape {
		switch d := (contained{d.value, d.not, min, max}); {
		case max != unlimited && min > max:
			return nil
		case max == 0:
			return []*arrayShape{{max: unlimited, items: d.not}}
		case max == unlimited && min == 0:
			return []*arrayShape{{max: unlimited}}
		case max == unlimited:
			d.not = 0
			fallthrough
		default:
			return []*arrayShape{{max: unlimited, contains: []contained{d}}}
		}
	}
	return assertion{
		c.but(func(s *shape) { s.arrays = with(d.min, d.max) }),
		shapeWith(func(s *shape) {
			if d.min > 0 {
				s.arrays = with(0, d.min-1)
			}
			if d.max != unlimited {
				s.arrays = append(s.arrays, with(d.max+1, unlimited)...)
			}
		}),
	}
}

func (c *schemas) objectOnly(holds *objectShape, fails func() []*objectShape) assertion {
	return assertion{
		c.but(func(s *shape) { s.objects = []*objectShape{holds} }),
		shapeWith(func(s *shape) { s.objects = fails() }),
	}
}

func readPropertyCount(c *schemas, s *value, name string, v *value) assertion {
	n := c.size(s, name, v)
	holds, fails := c.anyObject(), c.anyObject()
	if name == "minProperties" {
		holds.min, fails.max = n, n-1
		return c.objectOnly(holds, func() []*objectShape {
			if n == 0 {
				return nil
			}
			return []*objectShape{fails}
		})
	}
	holds.max, fails.min = n, n+1
	return c.objectOnly(holds, func() []*objectShape { return []*objectShape{fails} })
}

func readRequired(c *schemas, s *value, name string, v *value) assertion {
	if v.kind == isTrue || v.kind == isFalse {
		c.refuse(s, name, "want an array: a boolean is of draft 3, which is not supported")
	}
	names := c.nameList(s, name, v)
	holds := c.anyObject()
	holds.required = names
	return c.objectOnly(holds, func() (fails []*objectShape) {
		for _, n := range names {
			fails = append(fails, c.forbids(n))
		}
		return fails
	})
}

func (c *schemas) nameList(s *value, name string, v *value) (names []string) {
	if v.kind != isArray {
		c.refuse(s, name, "want an array of names")
	}
	c.checkNames(v)
	for _, item := range v.items {
		if item.kind != isString {
			c.refuse(s, name, "want an array of names")
		}
		names = append(names, item.text)
	}
	return c.joined(names)
}

// checkNames bounds the length of a list whose entries are compared with each other.
func (c *schemas) checkNames(v *value) {
	if len(v.items) > maxNames {
		panic(limit("%d names or values in one list, more than %d", len(v.items), maxNames))
	}
}

func (c *schemas) dictionary(s *value, name string) *value {
	v := s.get(name)
	if v == nil {
		return &value{kind: isObject}
	}
	if v.kind != isObject {
		c.refuse(s, name, "want an object")
	}
	c.checkNames(v)
	return v
}

func readProperties(c *schemas, s *value, _ string, _ *value) assertion {
	g := &propertyGroup{}
	properties, patterns := c.dictionary(s, "properties"), c.dictionary(s, "patternProperties")
	var fails []*objectShape
	for i, k := range properties.keys {
		c.spend(1)
		if properties.last(k) != i {
			continue
		}
		g.names, g.values = append(g.names, k), append(g.values, demand{&properties.items[i], mustMatch})
	}
	for i, k := range patterns.keys {
		g.patterns = append(g.patterns, c.pattern(&patterns.items[i], "patternProperties", k))
		g.patValues = append(g.patValues, demand{&patterns.items[i], mustMatch})
	}
	additional := s.get("additionalProperties")
	if additional != nil {
		g.additional = &demand{additional, mustMatch}
	}
	holds := c.anyObject()
	holds.groups = []*propertyGroup{g}
	return c.objectOnly(holds, func() []*objectShape {
		for i, k := range g.names {
			fails = append(fails, c.hasValue(k, demand{g.values[i].v, mustNot}))
		}
		trivial := func(v *value) bool { return v.kind == isTrue || v.kind == isObject && len(v.keys) == 0 }
		for i, d := range g.patValues {
			if !trivial(d.v) {
				fails = append(fails, c.hasSome(&witness{names: g.patterns[i], value: c.conj(demand{d.v, mustNot})}))
			}
		}
		if additional != nil && !trivial(additional) {
			fails = append(fails, c.hasSome(&witness{names: c.pool.text, except: g.names, unless: g.patterns, value: c.conj(demand{additional, mustNot})}))
		}
		return fails
	})
}

// group returns the group of one property, the same one for the same demand, so that alternatives
// compare.
func (c *schemas) group(name string, d demand) *propertyGroup {
	g := c.alone[member{name, d}]
	if g == nil {
		g = &propertyGroup{names: []string{name}, values: []demand{d}}
		c.alone[member{name, d}] = g
	}
	return g
}

// hasValue returns the shape of objects that have a property name whose value meets d.
func (c *schemas) hasValue(name string, d demand) *objectShape {
	o := c.anyObject()
	o.required = []string{name}
	o.groups = []*propertyGroup{c.group(name, d)}
	return o
}

// hasSome returns the shape of objects that have a property which w describes.
func (c *schemas) hasSome(w *witness) *objectShape {
	o := c.anyObject()
	o.some = []*witness{w}
	return o
}

func readNames(c *schemas, s *value, name string, v *value) assertion {
	return assertion{func() *shape {
		t := c.demanded(demand{v, mustMatch}).text
		return c.but(func(s *shape) {
			o := c.anyObject()
			o.names = c.pool.or(t.expr, c.words(t.words))
			if o.names == reNone {
				o.max = 0
			}
			s.objects = []*objectShape{o}
		})()
	}, func() *shape {
		bad := c.exceptTexts(c.demanded(demand{v, mustMatch}).text).expr
		if bad == reNone {
			return &shape{}
		}
		return &shape{objects: []*objectShape{c.hasSome(&witness{names: bad})}}
	}}
}

// readDependencies reads dependencies: each property is either absent or brings its dependents.
func readDependencies(c *schemas, s *value, name string, v *value) assertion {
	d := c.dictionary(s, name)
	with := func(i int) func() *shape {
		item := &d.items[i]
		o := c.anyObject()
		o.required = []string{d.keys[i]}
		if item.kind == isArray {
			o.required = c.joined(o.required, c.nameList(d, d.keys[i], item))
			return shapeWith(func(s *shape) { s.objects = []*objectShape{o} })
		}
		return func() *shape {
			return c.both(&shape{objects: []*objectShape{o}}, c.demanded(demand{item, mustMatch}))
		}
	}
	return assertion{func() *shape {
		result := c.anything
		for i, k := range d.keys {
			without := c.but(func(s *shape) { s.objects = []*objectShape{c.forbids(k)} })()
			result = c.both(result, c.either(without, with(i)()))
		}
		return result
	}, func() *shape {
		result := &shape{}
		for i, k := range d.keys {
			o := c.anyObject()
			o.required = []string{k}
			present := &shape{objects: []*objectShape{o}}
			item := &d.items[i]
			if item.kind == isArray {
				for _, n := range c.nameList(d, k, item) {
					result = c.either(result, c.both(present, &shape{objects: []*objectShape{c.forbids(n)}}))
				}
				continue
			}
			result = c.either(result, c.both(present, c.demanded(demand{item, mustNot})))
		}
		return result
	}}
}

func (c *schemas) list(s *value, name string, v *value) (list []*value) {
	if v.kind != isArray || len(v.items) == 0 {
		c.refuse(s, name, "want an array of schemas")
	}
	for i := range v.items {
		list = append(list, &v.items[i])
	}
	return list
}

func (c *schemas) all(list []*value, kind demandKind) *shape {
	s := c.anything
	for _, v := range list {
		s = c.both(s, c.demanded(demand{v, kind}))
	}
	return s
}

func (c *schemas) any(list []*value, kind demandKind) *shape {
	shapes := make([]*shape, len(list))
	for i, v := range list {
		shapes[i] = c.demanded(demand{v, kind})
	}
	return c.either(shapes...)
}

func readAll(c *schemas, s *value, name string, v *value) assertion {
	list := c.list(s, name, v)
	return assertion{func() *shape { return c.all(list, mustMatch) }, func() *shape { return c.any(list, mustNot) }}
}

func readAny(c *schemas, s *value, name string, v *value) assertion {
	list := c.list(s, name, v)
	return assertion{func() *shape { return c.any(list, mustMatch) }, func() *shape { return c.all(list, mustNot) }}
}

func readNot(c *schemas, s *value, name string, v *value) assertion {
	return assertion{func() *shape { return c.demanded(demand{v, mustNot}) }, func() *shape { return c.demanded(demand{v, mustMatch}) }}
}

const levels = 3 // nesting depth to which alternatives are compared for being disjoint

// readOne reads oneOf. Alternatives that exclude each other are taken as they are; from others the
// values that several allow are subtracted.
func readOne(c *schemas, s *value, name string, v *value) assertion {
	list := c.list(s, name, v)
	return assertion{func() *shape {
		shapes := make([]*shape, len(list))
		for i, item := range list {
			shapes[i] = c.demanded(demand{item, mustMatch})
		}
		result := &shape{}
		for i, one := range shapes {
			for j, other := range shapes {
				if i != j && !c.empty(c.both(one, other), levels) {
					one = c.both(one, c.demanded(demand{list[j], mustNot}))
				}
			}
			result = c.either(result, one)
		}
		return result
	}, func() *shape {
		result := c.all(list, mustNot)
		for i := range list {
			for j := range i {
				result = c.either(result, c.both(c.demanded(demand{list[i], mustMatch}), c.demanded(demand{list[j], mustMatch})))
			}
		}
		return result
	}}
}

func readIf(c *schemas, s *value, name string, v *value) assertion {
	cond := c.get(s, "if")
	if cond == nil {
		return assertion{func() *shape { return c.anything }, func() *shape { return &shape{} }}
	}
	branch := func(name string, on, kind demandKind) *shape {
		then := s.get(name)
		if then == nil {
			then = &value{kind: isTrue}
		}
		return c.both(c.demanded(demand{cond, on}), c.demanded(demand{then, kind}))
	}
	return assertion{
		func() *shape {
			return c.either(branch("then", mustMatch, mustMatch), branch("else", mustNot, mustMatch))
		},
		func() *shape { return c.either(branch("then", mustMatch, mustNot), branch("else", mustNot, mustNot)) },
	}
}

func readRef(c *schemas, s *value, name string, v *value) assertion {
	if v.kind != isString {
		c.refuse(s, name, "want a string")
	}
	if name == "$recursiveRef" && c.refs.recursiveAnchor {
		c.refuse(s, name, "with $recursiveAnchor is not supported")
	}
	target, err := c.refs.resolve(s, v.text)
	if err != nil {
		c.refuse(s, name, err.Error())
	}
	return assertion{func() *shape { return c.demanded(demand{target, mustMatch}) }, func() *shape { return c.demanded(demand{target, mustNot}) }}
}
