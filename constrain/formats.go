package constrain

// format is a format that JSON Schema defines, as an expression for the whole string; a format
// without an expression is refused. What an automaton cannot check is not allowed: a label of a host
// name in punycode, and pairs with a backslash in the local part of a mail address.
type format struct {
	expr string
	leap bool    // or a time of day with a leap second
	most int     // maximum number of characters, 0: unlimited
	head *format // what precedes the expression
}

const (
	fullDate = `(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))` +
		`|(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29)`
	fullTime = `(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]+)?(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])`
	period   = `P(?:[0-9]+W|(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)(?:T` + clock + `)?|T` + clock + `)`
	clock    = `(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)`

	label    = `[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?`
	domain   = label + `(?:\.` + label + `)*`
	ldh      = `[A-Za-z0-9](?:[A-Za-z0-9-]{0,2}[A-Za-z0-9]|[A-Za-z0-9-](?:[A-Za-z0-9][A-Za-z0-9-]|-[A-Za-z0-9])[A-Za-z0-9-]{0,58}[A-Za-z0-9])?` // without -- behind two characters
	hostname = ldh + `(?:\.` + ldh + `)*`
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
	if f.leap {
		r = n.or(r, n.automaton(leapSecond{}, 0))
	}
	if f.head != nil {
		r = n.cat(n.formatted(f.head), r)
	}
	if f.most > 0 {
		r = n.and(r, n.repeat(n.char, 0, f.most))
	}
	return r
}

var formats = map[string]format{
	"date-time":             {expr: fullTime, leap: true, head: &format{expr: fullDate + `[Tt]`}},
	"date":                  {expr: fullDate},
	"time":                  {expr: fullTime, leap: true},
	"duration":              {expr: period},
	"email":                 {expr: `@(?:` + domain + `|\[(?:` + ipv4 + `|IPv6:` + ipv6 + `)\])`, most: 254, head: &format{expr: atom + `(?:\.` + atom + `)*|"[ !#-\[\]-~]*"`, most: 64}},
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

// leapSecond is a machine that accepts the times of day in which a leap second can be: 23:59:60 in
// UTC, in any zone. A state is the number of bytes read, up to the zone, times 2^11, and the minutes
// of the day that they give.
type leapSecond struct{}

func (leapSecond) key() string { return "leap second" }

const (
	leapForm = "hh:mm:60" // then a fraction, and the zone
	leapZone = 32         // bytes counted before the first of the zone
	day      = 24 * 60
)

func (leapSecond) step(s int32, b byte) int32 {
	read, minutes := int(s>>11), int(s&(1<<11-1))
	digit := int(b) - '0'
	state := func(read, minutes int) int32 { return int32(read<<11 | minutes) }
	switch {
	case read < 5 && leapForm[read] != ':':
		unit := [...]int{600, 60, 0, 10, 1}[read]
		most := [...]int{2, 9, 0, 5, 9}[read]
		if read == 1 && minutes == 2*600 {
			most = 3
		}
		if digit < 0 || digit > most {
			return -1
		}
		return state(read+1, minutes+digit*unit)
	case read < len(leapForm):
		if b != leapForm[read] {
			return -1
		}
		return state(read+1, minutes)
	case read < leapZone:
		point := read - len(leapForm) // 0 none, 1 the point, 2 digits behind it
		switch {
		case point == 0 && b == '.':
			return state(read+1, minutes)
		case point >= 1 && digit >= 0 && digit <= 9:
			return state(len(leapForm)+2, minutes)
		case point == 1:
		case (b == 'Z' || b == 'z') && minutes == day-1:
			return state(leapZone+5, 0)
		case b == '+':
			return state(leapZone, (minutes+1)%day)
		case b == '-':
			return state(leapZone, day-1-minutes)
		}
		return -1
	}
	// minutes is now the offset, of which the digits must follow.
	offset := [...]byte{byte('0' + minutes/600), byte('0' + minutes/60%10), ':', byte('0' + minutes%60/10), byte('0' + minutes%10)}
	if at := read - leapZone; at < len(offset) && b == offset[at] {
		return state(read+1, minutes)
	}
	return -1
}

func (leapSecond) accepts(s int32) bool { return s>>11 == leapZone+5 }
