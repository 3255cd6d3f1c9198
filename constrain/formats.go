package constrain

// format is a format that JSON Schema defines, as an expression for the whole string; a format
// without an expression is refused. Where implementations disagree on a standard's rarer forms,
// such as quoted local parts of mail addresses, only the common form is allowed.
type format struct {
	expr string
	most int     // maximum number of characters, 0: unlimited
	head *format // what precedes the expression
}

const (
	fullDate = `(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))` +
		`|(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29)`
	fullTime = `(?:(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]+)?(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])|23:59:60(?:\.[0-9]+)?[Zz])`
	period   = `P(?:[0-9]+W|(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)(?:T` + clock + `)?|T` + clock + `)`
	clock    = `(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)`

	label    = `[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?`
	hostname = label + `(?:\.` + label + `)*`
	octet    = `(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])`
	ipv4     = octet + `(?:\.` + octet + `){3}`
	h16      = `[0-9A-Fa-f]{1,4}`
	ls32     = `(?:` + h16 + `:` + h16 + `|` + ipv4 + `)`
	ipv6     = `(?:(?:` + h16 + `:){6}` + ls32 +
		`|::(?:` + h16 + `:){5}` + ls32 +
		`|(?:` + h16 + `)?::(?:` + h16 + `:){4}` + ls32 +
		`|(?:(?:` + h16 + `:){0,1}` + h16 + `)?::(?:` + h16 + `:){3}` + ls32 +
		`|(?:(?:` + h16 + `:){0,2}` + h16 + `)?::(?:` + h16 + `:){2}` + ls32 +
		`|(?:(?:` + h16 + `:){0,3}` + h16 + `)?::` + h16 + `:` + ls32 +
		`|(?:(?:` + h16 + `:){0,4}` + h16 + `)?::` + ls32 +
		`|(?:(?:` + h16 + `:){0,5}` + h16 + `)?::` + h16 +
		`|(?:(?:` + h16 + `:){0,6}` + h16 + `)?::)`
	atom = `[A-Za-z0-9!#$%&'*+/=?^_{|}~\x60-]+`

	// RFC 3986, appendix A; RFC 3987 adds characters beyond ASCII.
	uriChar  = `[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2}`
	uriHost  = `(?:\[(?:` + ipv6 + `|[vV][0-9A-Fa-f]+\.[A-Za-z0-9._~!$&'()*+,;=:-]+)\]|(?:[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*)`
	uriRest  = `(?:\?(?:` + uriChar + `|[/?])*)?(?:#(?:` + uriChar + `|[/?])*)?`
	uriBody  = `(?://(?:(?:[A-Za-z0-9._~!$&'()*+,;=:-]|%[0-9A-Fa-f]{2})*@)?` + uriHost + `(?::[0-9]*)?(?:/(?:` + uriChar + `)*)*|/(?:(?:` + uriChar + `)+(?:/(?:` + uriChar + `)*)*)?|(?:` + uriChar + `)+(?:/(?:` + uriChar + `)*)*|)`
	uriFirst = `(?:[A-Za-z0-9._~!$&'()*+,;=@-]|%[0-9A-Fa-f]{2})` // first segment of a relative path: no colon
	uri      = `[A-Za-z][A-Za-z0-9+.-]*:` + uriBody + uriRest
	relative = `(?://(?:(?:[A-Za-z0-9._~!$&'()*+,;=:-]|%[0-9A-Fa-f]{2})*@)?` + uriHost + `(?::[0-9]*)?(?:/(?:` + uriChar + `)*)*|/(?:(?:` + uriChar + `)+(?:/(?:` + uriChar + `)*)*)?|` + uriFirst + `+(?:/(?:` + uriChar + `)*)*|)` + uriRest
	pointer  = `(?:/(?:[^~/]|~[01])*)*`
)

// formatted returns the expression for strings of a format.
func (n *numbers) formatted(f *format) re {
	r := n.must(f.expr)
	if f.head != nil {
		r = n.cat(n.formatted(f.head), r)
	}
	if f.most > 0 {
		r = n.and(r, n.repeat(n.char, 0, f.most))
	}
	return r
}

var formats = map[string]format{
	"date-time":             {expr: fullDate + `[Tt]` + fullTime},
	"date":                  {expr: fullDate},
	"time":                  {expr: fullTime},
	"duration":              {expr: period},
	"email":                 {expr: `@` + hostname, most: 254, head: &format{expr: atom + `(?:\.` + atom + `)*`, most: 64}},
	"hostname":              {expr: hostname, most: 253},
	"ipv4":                  {expr: ipv4},
	"ipv6":                  {expr: ipv6},
	"uri":                   {expr: uri},
	"uri-reference":         {expr: `(?:` + uri + `|` + relative + `)`},
	"uuid":                  {expr: `[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}`},
	"json-pointer":          {expr: pointer},
	"relative-json-pointer": {expr: `(?:0|[1-9][0-9]*)(?:#|` + pointer + `)`},
	"regex":                 {}, "iri": {}, "iri-reference": {}, "uri-template": {}, "idn-email": {}, "idn-hostname": {},
}
