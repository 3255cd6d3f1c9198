package tokenizer

import (
	"bytes"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strings"
)

// Members of a tokenizer.json that affect ids. A component that is not listed here is an error,
// since it would change ids.
type (
	hfFile struct {
		AddedTokens   []hfToken `json:"added_tokens"`
		Normalizer    hfComponent
		PreTokenizer  hfComponent `json:"pre_tokenizer"`
		PostProcessor hfComponent `json:"post_processor"`
		Decoder       hfComponent
		Model         hfModel

		marked bool // the normalizer replaces spaces by Space
	}

	hfToken struct {
		ID         int64
		Content    string
		SingleWord bool `json:"single_word"`
		Lstrip     bool
		Rstrip     bool
		Normalized *bool
		Special    bool
	}

	hfModel struct {
		Type          string
		Dropout       *float64
		UnkToken      *string `json:"unk_token"`
		UnkID         *int64  `json:"unk_id"`
		FuseUnk       bool    `json:"fuse_unk"`
		MaxWord       *int    `json:"max_input_chars_per_word"`
		SubwordPrefix *string `json:"continuing_subword_prefix"`
		WordSuffix    *string `json:"end_of_word_suffix"`
		ByteFallback  bool    `json:"byte_fallback"`
		IgnoreMerges  bool    `json:"ignore_merges"`
		Vocab         hfVocab
		Merges        hfMerges
	}

	// hfVocab is an object of ids by text or, of unigrams, a list of [text, score] by id.
	hfVocab struct {
		ids    map[string]int64
		scores []float32
	}

	// hfComponent is any normalizer, pre-tokenizer, post-processor or decoder; Type is empty where
	// the file has null.
	hfComponent struct {
		Type string

		Normalizers   []hfComponent
		Pretokenizers []hfComponent
		Processors    []hfComponent
		Decoders      []hfComponent

		Pattern          hfPattern
		Content          string
		Behavior         string
		Invert           bool
		Prepend          string
		Replacement      string
		PrependScheme    *string `json:"prepend_scheme"`
		AddPrefixSpace   *bool   `json:"add_prefix_space"`
		UseRegex         *bool   `json:"use_regex"`
		Split            *bool
		IndividualDigits bool `json:"individual_digits"`
		Delimiter        string

		// BertNormalizer, Strip, Precompiled
		CleanText    *bool `json:"clean_text"`
		ChineseChars *bool `json:"handle_chinese_chars"`
		StripAccents *bool `json:"strip_accents"`
		Lowercase    *bool
		StripLeft    *bool  `json:"strip_left"`
		StripRight   *bool  `json:"strip_right"`
		Charsmap     []byte `json:"precompiled_charsmap"`

		// BertProcessing, RobertaProcessing: [text, id]
		Sep, Cls hfEnd
		Prefix   string // of the decoder WordPiece

		Single        []hfTemplatePart
		SpecialTokens map[string]struct{ IDs []int64 } `json:"special_tokens"`
	}

	hfEnd struct {
		text string
		id   int64
	}

	hfPattern struct{ String, Regex *string }

	hfTemplatePart struct {
		SpecialToken *struct{ ID string }
		Sequence     *struct{ ID string }
	}

	// hfMerges are stored as "left right" or, since 2024, as ["left", "right"].
	hfMerges []string

	hfConfig struct {
		BOS    hfName `json:"bos_token"`
		EOS    hfName `json:"eos_token"`
		UNK    hfName `json:"unk_token"`
		PAD    hfName `json:"pad_token"`
		AddBOS *bool  `json:"add_bos_token"`
		AddEOS *bool  `json:"add_eos_token"`
	}

	// hfName is a token's text, or an object with the text as its content.
	hfName string
)

func (v *hfVocab) UnmarshalJSON(data []byte) error {
	if data[0] != '[' {
		return json.Unmarshal(data, &v.ids)
	}
	var list []json.RawMessage
	if err := json.Unmarshal(data, &list); err != nil {
		return err
	}
	v.ids, v.scores = make(map[string]int64, len(list)), make([]float32, len(list))
	for i, raw := range list {
		var text string
		pair := []any{&text, &v.scores[i]}
		if err := json.Unmarshal(raw, &pair); err != nil {
			return err
		}
		if len(pair) != 2 {
			return specError("model.vocab[%d] is %s, not [text, score]", i, raw)
		}
		if _, ok := v.ids[text]; ok {
			return specError("model.vocab[%d]: %q twice", i, text)
		}
		v.ids[text] = int64(i)
	}
	return nil
}

func (e *hfEnd) UnmarshalJSON(data []byte) error {
	pair := []any{&e.text, &e.id}
	if err := json.Unmarshal(data, &pair); err != nil {
		return err
	}
	if len(pair) != 2 {
		return specError("%s is not [text, id]", data)
	}
	return nil
}

func (m *hfMerges) UnmarshalJSON(data []byte) error {
	if inner := bytes.TrimLeft(data[1:], " \t\r\n"); len(inner) == 0 || inner[0] != '[' {
		return json.Unmarshal(data, (*[]string)(m))
	}
	var pairs [][2]string
	if err := json.Unmarshal(data, &pairs); err != nil {
		return err
	}
	*m = make(hfMerges, len(pairs))
	for i, p := range pairs {
		if strings.Contains(p[0], " ") || strings.Contains(p[1], " ") {
			return specError("model.merges[%d] has a space in %q", i, p)
		}
		(*m)[i] = p[0] + " " + p[1]
	}
	return nil
}

func (n *hfName) UnmarshalJSON(data []byte) error {
	if data[0] != '{' {
		return json.Unmarshal(data, (*string)(n))
	}
	var token hfToken
	err := json.Unmarshal(data, &token)
	*n = hfName(token.Content)
	return err
}

// flatten returns the parts of a Sequence, or the component itself; nothing for null.
func (c *hfComponent) flatten() []hfComponent {
	switch c.Type {
	case "":
		return nil
	case "Sequence":
		var list []hfComponent
		for _, parts := range [][]hfComponent{c.Normalizers, c.Pretokenizers, c.Processors, c.Decoders} {
			for i := range parts {
				list = append(list, parts[i].flatten()...)
			}
		}
		return list
	}
	return []hfComponent{*c}
}

// ParseHF reads a vocabulary from the contents of tokenizer.json and, unless nil, of
// tokenizer_config.json. Errors name the unsupported component or field and wrap [ErrSpec], or are
// encoding/json's.
func ParseHF(tokenizerJSON, tokenizerConfigJSON []byte) (Spec, error) {
	var f hfFile
	if err := json.Unmarshal(tokenizerJSON, &f); err != nil {
		return Spec{}, specError("tokenizer.json: %w", err)
	}
	var config hfConfig
	if tokenizerConfigJSON != nil {
		if err := json.Unmarshal(tokenizerConfigJSON, &config); err != nil {
			return Spec{}, specError("tokenizer_config.json: %w", err)
		}
	}
	s := Spec{BOS: None, EOS: None, UNK: None, PAD: None}
	for _, step := range []func(*Spec) error{
		f.readModel, f.readTokens, f.readNormalizer, f.readPreTokenizer, f.readDecoder,
		func(s *Spec) error { return f.readEnds(s, &config) },
		(*Spec).validate,
	} {
		if err := step(&s); err != nil {
			return Spec{}, err
		}
	}
	return s, nil
}

// byteLevel reports whether the file is a byte-level BPE like GPT-2's.
func (f *hfFile) byteLevel() bool {
	isByteLevel := func(c hfComponent) bool { return c.Type == "ByteLevel" }
	return slices.ContainsFunc(f.PreTokenizer.flatten(), isByteLevel) || slices.ContainsFunc(f.Decoder.flatten(), isByteLevel)
}

func (f *hfFile) readModel(s *Spec) error {
	m := &f.Model
	if m.Type == "" && m.Merges != nil { // old files omit it
		m.Type = "BPE"
	}
	switch m.Type {
	case "BPE":
		return f.readBPE(s)
	case "Unigram":
		if m.Vocab.scores == nil {
			return specError("model.vocab is not a list of [text, score]")
		}
		s.Algorithm, s.ByteFallback = Unigram, m.ByteFallback
	case "WordPiece":
		s.Algorithm, s.MaxWord = WordPiece, 100 // the library's default
		if m.MaxWord != nil {
			s.MaxWord = *m.MaxWord
		}
		if s.Continuing = "##"; m.SubwordPrefix != nil {
			s.Continuing = *m.SubwordPrefix
		}
		if s.Continuing == "" {
			return specError("model.continuing_subword_prefix is empty")
		}
		if s.MaxWord <= 0 {
			return specError("model.max_input_chars_per_word is %d", s.MaxWord)
		}
	default:
		return specError("model.type is %q; known are BPE, Unigram and WordPiece", m.Type)
	}
	if f.byteLevel() {
		return specError("ByteLevel with a model of type %s is not known", m.Type)
	}
	return nil
}

func (f *hfFile) readBPE(s *Spec) error {
	m := &f.Model
	switch {
	case m.Dropout != nil && *m.Dropout != 0:
		return specError("model.dropout is %v; ids would be random", *m.Dropout)
	case m.SubwordPrefix != nil && *m.SubwordPrefix != "":
		return specError("model.continuing_subword_prefix %q is not known", *m.SubwordPrefix)
	case m.WordSuffix != nil && *m.WordSuffix != "":
		return specError("model.end_of_word_suffix %q is not known", *m.WordSuffix)
	case m.Vocab.scores != nil:
		return specError("model.vocab has scores")
	}
	s.Algorithm = BPE
	if f.byteLevel() {
		s.Algorithm = GPT2
	} else {
		s.ByteFallback, s.FuseUNK = m.ByteFallback, m.FuseUnk
		if !m.ByteFallback && m.UnkToken == nil {
			return specError("model.byte_fallback is false without unk_token or ByteLevel: not every text could be encoded")
		}
	}
	s.Merges, s.IgnoreMerges = m.Merges, m.IgnoreMerges
	return nil
}

// readTokens lists vocabulary and added tokens by id. Gaps become unused tokens without text.
func (f *hfFile) readTokens(s *Spec) error {
	last := int64(-1)
	for _, id := range f.Model.Vocab.ids {
		last = max(last, id)
	}
	for _, t := range f.AddedTokens {
		last = max(last, t.ID)
	}
	known := int64(len(f.Model.Vocab.ids) + len(f.AddedTokens))
	if last >= 2*known+1024 {
		return specError("ids up to %d for %d tokens", last, known)
	}
	n := last + 1
	s.Tokens = make([]string, n)
	s.Types = make([]Type, n)
	for id := range s.Types {
		s.Types[id] = Unused
	}
	for text, id := range f.Model.Vocab.ids {
		if id < 0 || s.Types[id] != Unused {
			return f.Model.Vocab.conflict()
		}
		s.Tokens[id], s.Types[id] = text, Normal
		if _, ok := byteToken(text); ok && s.ByteFallback {
			s.Types[id] = Byte
		}
	}
	if s.Algorithm == Unigram {
		s.Scores = make([]float32, n)
		copy(s.Scores, f.Model.Vocab.scores)
	}
	if id := f.Model.unknown(); id != None && int64(id) < n && s.Types[id] == Normal && s.Algorithm != GPT2 {
		s.Types[id] = Unknown
	}
	s.LeftmostSpecial = true
	for _, t := range f.AddedTokens {
		switch {
		case t.ID < 0 || s.Types[t.ID] != Unused && s.Tokens[t.ID] != t.Content:
			return specError("added_tokens: id %d of %q is negative or taken", t.ID, t.Content)
		}
		id := int32(t.ID)
		if _, ok := f.Model.Vocab.ids[t.Content]; !ok && !t.Special {
			s.Apart = append(s.Apart, id)
		}
		s.Tokens[id], s.Types[id] = t.Content, UserDefined
		if t.Special {
			s.Types[id] = Control
		}
		if t.Lstrip {
			s.StripLeft = append(s.StripLeft, id)
		}
		if t.Rstrip {
			s.StripRight = append(s.StripRight, id)
		}
		if t.SingleWord {
			s.SingleWord = append(s.SingleWord, id)
		}
		if t.Normalized != nil && *t.Normalized || t.Normalized == nil && !t.Special {
			s.Normalized = append(s.Normalized, id)
		}
	}
	return nil
}

// conflict returns the error of the first text, in order, whose id is negative or that of another.
func (v *hfVocab) conflict() error {
	taken := map[int64]bool{}
	for _, text := range slices.Sorted(maps.Keys(v.ids)) {
		id := v.ids[text]
		if id < 0 || taken[id] {
			return specError("model.vocab: id %d of %q is negative or taken", id, text)
		}
		taken[id] = true
	}
	return nil
}

// unknown returns the id of the model's UNK token.
func (m *hfModel) unknown() int32 {
	if m.UnkID != nil && *m.UnkID >= 0 && *m.UnkID < math.MaxInt32 {
		return int32(*m.UnkID)
	}
	if m.UnkToken != nil {
		if id, ok := m.Vocab.ids[*m.UnkToken]; ok {
			return int32(id)
		}
	}
	return None
}

// readNormalizer splits the normalizers into those of the table normalizers. The leading ones of
// SentencePiece's BPE, which put Space before a text and replace spaces, become Spec.Prefix or are
// implied by [BPE].
func (f *hfFile) readNormalizer(s *Spec) error {
	parts := f.Normalizer.flatten()
	if s.Algorithm == BPE && len(parts) > 0 {
		last := parts[len(parts)-1]
		if last.Type == "Replace" && last.Pattern.isString(" ") && last.Content == Space {
			parts, f.marked = parts[:len(parts)-1], true
			if n := len(parts); n > 0 && parts[n-1].Type == "Prepend" && parts[n-1].Prepend == Space {
				parts, s.Prefix = parts[:n-1], PrefixAlways
			}
		}
	}
	add := func(kind, old, new string) {
		s.Normalize = append(s.Normalize, Normalizer{kind, old, new})
	}
	for _, c := range parts {
		switch c.Type {
		case "NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt":
			add(c.Type, "", "")
		case "Prepend":
			add(c.Type, "", c.Prepend)
		case "Precompiled":
			add(c.Type, string(c.Charsmap), "")
		case "Strip":
			if c.StripLeft == nil || *c.StripLeft {
				add("StripLeft", "", "")
			}
			if c.StripRight == nil || *c.StripRight {
				add("StripRight", "", "")
			}
		case "Replace":
			switch p := c.Pattern; {
			case p.String != nil && *p.String != "":
				add(c.Type, *p.String, c.Content)
			case p.Regex != nil && knownRegexes[*p.Regex] != nil:
				add("ReplaceRegex", *p.Regex, c.Content)
			case p.Regex != nil:
				return specError("normalizer Replace: unknown pattern %q", *p.Regex)
			default:
				return specError("normalizer Replace has no pattern")
			}
		case "BertNormalizer":
			lower := c.Lowercase == nil || *c.Lowercase
			if c.CleanText == nil || *c.CleanText {
				add("BertCleanText", "", "")
			}
			if c.ChineseChars == nil || *c.ChineseChars {
				add("BertIdeographs", "", "")
			}
			if c.StripAccents == nil && lower || c.StripAccents != nil && *c.StripAccents {
				add("NFD", "", "")
				add("BertStripAccents", "", "")
			}
			if lower {
				add("Lowercase", "", "")
			}
		default:
			return specError("normalizer %s is not known", c.Type)
		}
	}
	return nil
}

func (p *hfPattern) isString(s string) bool { return p.String != nil && *p.String == s }

// readPreTokenizer sets the name of a known list of patterns, or the [SpacePrefix] of
// SentencePiece's kind; anything else becomes steps.
func (f *hfFile) readPreTokenizer(s *Spec) error {
	parts := f.PreTokenizer.flatten()
	switch {
	case s.Algorithm == GPT2 && f.named(s, parts):
		return nil
	case s.Algorithm == BPE && f.metaspaced(s, parts):
		return nil
	case s.Algorithm == BPE && f.marked:
		s.Normalize = append(s.Normalize, Normalizer{"Replace", " ", Space})
		if s.Prefix == PrefixAlways {
			s.Normalize = slices.Insert(s.Normalize, len(s.Normalize)-1, Normalizer{"Prepend", "", Space})
		}
	}
	bytes := false
	for _, c := range parts {
		steps, err := c.steps()
		if err != nil {
			return err
		}
		for _, x := range steps {
			x.Alphabet = bytes && x.Kind == stepCut
			switch x.Kind {
			case stepMetaspace:
				s.Prefix = PrefixMissing
			case stepMetaspaceFirst:
				s.Prefix = PrefixMissingFirst
			case stepPrefixSpace:
				s.Prefix = PrefixMissing
			}
			if bytes && x.Kind != stepCut {
				return specError("pre_tokenizer %s after ByteLevel is not known", c.Type)
			}
			s.Steps = append(s.Steps, x)
		}
		bytes = bytes || c.Type == "ByteLevel"
	}
	if s.Algorithm == GPT2 && !bytes {
		return specError("pre_tokenizer has no ByteLevel")
	}
	if len(s.Steps) == 0 {
		s.Steps = []Step{{Kind: stepWhole}}
	}
	return nil
}

// named recognises the byte-level pre-tokenizers that have a name in GGUF files.
func (f *hfFile) named(s *Spec, parts []hfComponent) bool {
	var cuts []cut
	prefix := NoPrefix
	for i, c := range parts {
		steps, err := c.steps()
		if err != nil || (c.Type == "ByteLevel") != (i == len(parts)-1) {
			return false
		}
		for _, x := range steps {
			switch x.Kind {
			case stepPrefixSpace:
				if len(cuts) > 0 {
					return false
				}
				prefix = PrefixMissing
			case stepCut:
				// If a pattern matches everything, removing the text between its matches equals
				// isolating the matches.
				if x.Invert && x.Behavior == "Removed" {
					x.Invert, x.Behavior = false, "Isolated"
				}
				c, err := x.cutOf()
				if err != nil || c.invert {
					return false
				}
				cuts = append(cuts, c)
			}
		}
	}
	found := false
	for _, name := range []string{"", "gpt-2", "dbrx", "llama-bpe", "qwen2", "smollm", "qwen35", "seed-coder", "bailingmoe", "exaone-moe", "minicpm5", "deepseek-v3", "bloom"} {
		if p := pretokenizers[name]; slices.Equal(p.cuts, cuts) && (!found || p.ignoreMerges == s.IgnoreMerges) {
			s.Pre, s.Prefix, found = name, prefix, true // of two names, the one that agrees with the file's ignore_merges
		}
	}
	return found && len(parts) > 0
}

// metaspaced recognises the ways of marking spaces that [SpacePrefix] names.
func (f *hfFile) metaspaced(s *Spec, parts []hfComponent) bool {
	if len(parts) == 0 {
		return f.marked
	}
	c := parts[0]
	steps, err := c.steps()
	if len(parts) > 1 || err != nil || c.Type != "Metaspace" || f.marked {
		return false
	}
	switch steps[0].Kind {
	case stepMetaspace:
		s.Prefix = PrefixMissing
	case stepMetaspaceFirst:
		s.Prefix = PrefixMissingFirst
	}
	if len(steps) > 1 {
		s.Pre = "metaspace"
	}
	return true
}

// steps returns the steps of a pre-tokenizer.
func (c *hfComponent) steps() ([]Step, error) {
	isolate := func(pattern string) Step { return Step{Kind: stepCut, Pattern: pattern, Behavior: "Isolated"} }
	remove := func(pattern string) Step { return Step{Kind: stepCut, Pattern: pattern, Behavior: "Removed"} }
	switch c.Type {
	case "ByteLevel":
		var steps []Step
		if c.AddPrefixSpace == nil || *c.AddPrefixSpace { // the library's default
			steps = append(steps, Step{Kind: stepPrefixSpace})
		}
		if c.UseRegex == nil || *c.UseRegex {
			steps = append(steps, isolate("byte level"))
		}
		return steps, nil
	case "Split":
		x := Step{Kind: stepCut, Behavior: c.Behavior, Invert: c.Invert}
		switch p := c.Pattern; {
		case p.Regex != nil:
			if x.Pattern = *p.Regex; knownRegexes[x.Pattern] == nil {
				return nil, specError("pre_tokenizer Split: unknown pattern %q", x.Pattern)
			}
		case p.String != nil:
			x.Pattern = literalPattern + *p.String
		default:
			return nil, specError("pre_tokenizer Split has no pattern")
		}
		return []Step{x}, nil
	case "Digits":
		x := isolate("number")
		if !c.IndividualDigits {
			x.Behavior = "Contiguous"
		}
		return []Step{x}, nil
	case "Punctuation":
		x := isolate("punctuation")
		if c.Behavior != "" {
			x.Behavior = c.Behavior
		}
		return []Step{x}, nil
	case "BertPreTokenizer":
		return []Step{remove("white space"), isolate("punctuation")}, nil
	case "WhitespaceSplit":
		return []Step{remove("white space")}, nil
	case "Whitespace":
		x := remove("word")
		x.Invert = true
		return []Step{x}, nil
	case "CharDelimiterSplit":
		return []Step{remove(literalPattern + c.Delimiter)}, nil
	case "Metaspace":
		return c.metaspace()
	}
	return nil, specError("pre_tokenizer %s is not known", c.Type)
}

func (c *hfComponent) metaspace() ([]Step, error) {
	if c.Replacement != Space {
		return nil, specError("pre_tokenizer Metaspace: replacement %q is not known", c.Replacement)
	}
	scheme := "always"
	if c.PrependScheme != nil {
		scheme = *c.PrependScheme
	} else if c.AddPrefixSpace != nil && !*c.AddPrefixSpace {
		scheme = "never"
	}
	kind, ok := map[string]string{"always": stepMetaspace, "first": stepMetaspaceFirst, "never": stepMetaspaceInside}[scheme]
	if !ok {
		return nil, specError("pre_tokenizer Metaspace: prepend_scheme %q is not known", scheme)
	}
	steps := []Step{{Kind: kind}}
	if c.Split == nil || *c.Split {
		steps = append(steps, Step{Kind: stepCut, Pattern: literalPattern + Space, Behavior: "MergedWithNext"})
	}
	return steps, nil
}

// readDecoder checks that the file's decoder inverts the encoding, as a [Decoder] does; it sets
// nothing.
func (f *hfFile) readDecoder(s *Spec) error {
	known := []string{"ByteLevel"}
	switch s.Algorithm {
	case BPE, Unigram:
		known = []string{"Replace", "ByteFallback", "Fuse", "Strip", "Metaspace"}
	case WordPiece:
		known = []string{"WordPiece"}
	}
	for _, c := range f.Decoder.flatten() {
		if !slices.Contains(known, c.Type) || c.Type == "Replace" && !(c.Pattern.isString(Space) && c.Content == " ") {
			return specError("decoder %s is not known in this form", c.Type)
		}
	}
	return nil
}

// readEnds finds the special tokens, and whether prompts start or end with one: by the
// configuration, else by the template.
func (f *hfFile) readEnds(s *Spec, config *hfConfig) error {
	find := func(name string) int32 {
		for id, text := range s.Tokens {
			if text == name && name != "" {
				return int32(id)
			}
		}
		return None
	}
	for _, e := range []struct {
		id   *int32
		name hfName
	}{{&s.BOS, config.BOS}, {&s.EOS, config.EOS}, {&s.UNK, config.UNK}, {&s.PAD, config.PAD}} {
		*e.id = find(string(e.name))
	}
	if id := f.Model.unknown(); id != None && int(id) < len(s.Tokens) { // encoding uses the model's, even if the configuration has another
		s.UNK = id
	}
	if s.EOS == None && config.EOS != "" {
		return specError("eos_token %q is not in the vocabulary", string(config.EOS))
	}
	for _, c := range f.PostProcessor.flatten() {
		switch c.Type {
		case "ByteLevel": // affects offsets only
		case "TemplateProcessing":
			if err := c.readTemplate(s); err != nil {
				return err
			}
		case "BertProcessing", "RobertaProcessing":
			for _, e := range []struct {
				end hfEnd
				id  *int32
				add *bool
			}{{c.Cls, &s.BOS, &s.AddBOS}, {c.Sep, &s.EOS, &s.AddEOS}} {
				if e.end.id < 0 || e.end.id >= int64(len(s.Tokens)) || s.Tokens[e.end.id] != e.end.text {
					return specError("post_processor %s: %q is not token %d", c.Type, e.end.text, e.end.id)
				}
				*e.id, *e.add = int32(e.end.id), true
			}
		default:
			return specError("post_processor %s is not known", c.Type)
		}
	}
	if config.AddBOS != nil {
		s.AddBOS = *config.AddBOS
	}
	if config.AddEOS != nil {
		s.AddEOS = *config.AddEOS
	}
	return nil
}

// readTemplate reads a template for one text: [BOS] text [EOS].
func (c *hfComponent) readTemplate(s *Spec) error {
	text := false
	for _, part := range c.Single {
		if part.Sequence != nil && !text {
			text = true
			continue
		}
		end, add := &s.BOS, &s.AddBOS
		if text {
			end, add = &s.EOS, &s.AddEOS
		}
		if part.SpecialToken == nil || *add {
			return specError("post_processor TemplateProcessing: only [start] text [end] is known")
		}
		ids := c.SpecialTokens[part.SpecialToken.ID].IDs
		if len(ids) != 1 || ids[0] < 0 || ids[0] >= int64(len(s.Tokens)) {
			return specError("post_processor TemplateProcessing: ids of %q are %v", part.SpecialToken.ID, ids)
		}
		*end, *add = int32(ids[0]), true
	}
	if !text {
		return specError("post_processor TemplateProcessing has no text")
	}
	return nil
}

// addGenerationConfig adds the end tokens of a generation_config.json, by which chat models end a
// turn; data may be nil.
func (s *Spec) addGenerationConfig(data []byte) error {
	if data == nil {
		return nil
	}
	var config struct {
		EOS json.RawMessage `json:"eos_token_id"`
	}
	if err := json.Unmarshal(data, &config); err != nil {
		return specError("generation_config.json: %w", err)
	}
	if len(config.EOS) == 0 || string(config.EOS) == "null" {
		return nil
	}
	var ids []int32
	if config.EOS[0] != '[' {
		config.EOS = slices.Concat([]byte("["), config.EOS, []byte("]"))
	}
	if err := json.Unmarshal(config.EOS, &ids); err != nil {
		return specError("generation_config.json: eos_token_id: %w", err)
	}
	for _, id := range ids {
		// Vocabularies are often padded, but an end token beyond them is an error.
		if id < 0 || int(id) >= len(s.Tokens) {
			return specError("generation_config.json: eos_token_id %d of %d tokens", id, len(s.Tokens))
		}
		if id != s.EOS && !slices.Contains(s.Stop, id) {
			s.Stop = append(s.Stop, id)
		}
	}
	if s.EOS == None && len(ids) > 0 {
		s.EOS = ids[0]
	}
	return nil
}
