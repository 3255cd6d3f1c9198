package tokenizer

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// The parts of a tokenizer.json that decide ids. Components that are not
// listed here are errors: each would change ids in its own way.
type (
	hfFile struct {
		AddedTokens   []hfToken `json:"added_tokens"`
		Normalizer    hfComponent
		PreTokenizer  hfComponent `json:"pre_tokenizer"`
		PostProcessor hfComponent `json:"post_processor"`
		Decoder       hfComponent
		Model         hfModel
	}

	hfToken struct {
		ID         int64
		Content    string
		SingleWord bool `json:"single_word"`
		Lstrip     bool
		Rstrip     bool
		Special    bool
	}

	hfModel struct {
		Type          string
		Dropout       *float64
		UnkToken      *string `json:"unk_token"`
		SubwordPrefix *string `json:"continuing_subword_prefix"`
		WordSuffix    *string `json:"end_of_word_suffix"`
		ByteFallback  bool    `json:"byte_fallback"`
		IgnoreMerges  bool    `json:"ignore_merges"`
		Vocab         map[string]int64
		Merges        hfMerges
	}

	// hfComponent is any normaliser, pre-tokenizer, post-processor or decoder;
	// Type is empty where the file has null.
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

		Single        []hfTemplatePart
		SpecialTokens map[string]struct{ IDs []int64 } `json:"special_tokens"`
	}

	hfPattern struct{ String, Regex *string }

	hfTemplatePart struct {
		SpecialToken *struct{ ID string }
		Sequence     *struct{ ID string }
	}

	// hfMerges are written "left right" or, since 2024, ["left", "right"].
	hfMerges []string

	hfConfig struct {
		BOS    hfName `json:"bos_token"`
		EOS    hfName `json:"eos_token"`
		UNK    hfName `json:"unk_token"`
		PAD    hfName `json:"pad_token"`
		AddBOS *bool  `json:"add_bos_token"`
		AddEOS *bool  `json:"add_eos_token"`
	}

	// hfName is a token's text, or an object that has it as its content.
	hfName string
)

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

// flatten gives the parts of a component that is a Sequence, or itself; nothing
// for null.
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

// ParseHF reads a vocabulary from the contents of tokenizer.json and, unless
// nil, tokenizer_config.json. Errors name the component or field that is not
// known and wrap [ErrSpec], or are encoding/json's.
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

// byteLevel reports whether the file is of GPT-2's kind.
func (f *hfFile) byteLevel() bool {
	isByteLevel := func(c hfComponent) bool { return c.Type == "ByteLevel" }
	return slices.ContainsFunc(f.PreTokenizer.flatten(), isByteLevel) || slices.ContainsFunc(f.Decoder.flatten(), isByteLevel)
}

func (f *hfFile) readModel(s *Spec) error {
	m := &f.Model
	switch {
	case m.Type != "BPE" && !(m.Type == "" && m.Merges != nil): // old files leave the type out
		return specError("model.type is %q; only BPE is known", m.Type)
	case m.Dropout != nil && *m.Dropout != 0:
		return specError("model.dropout is %v; ids would be random", *m.Dropout)
	case m.SubwordPrefix != nil && *m.SubwordPrefix != "":
		return specError("model.continuing_subword_prefix %q is not known", *m.SubwordPrefix)
	case m.WordSuffix != nil && *m.WordSuffix != "":
		return specError("model.end_of_word_suffix %q is not known", *m.WordSuffix)
	}
	s.Algorithm = BPE
	if f.byteLevel() {
		s.Algorithm = GPT2
	} else if !m.ByteFallback {
		return specError("model.byte_fallback is false without ByteLevel: not every text could be encoded")
	}
	s.Merges, s.IgnoreMerges = m.Merges, m.IgnoreMerges
	return nil
}

// readTokens lays vocabulary and added tokens out by id. Ids that nobody has
// become unused tokens without text.
func (f *hfFile) readTokens(s *Spec) error {
	n := int64(0)
	for _, id := range f.Model.Vocab {
		n = max(n, id+1)
	}
	for _, t := range f.AddedTokens {
		n = max(n, t.ID+1)
	}
	known := int64(len(f.Model.Vocab) + len(f.AddedTokens))
	if n > 2*known+1024 {
		return specError("ids up to %d for %d tokens", n-1, known)
	}
	s.Tokens = make([]string, n)
	s.Types = make([]Type, n)
	for id := range s.Types {
		s.Types[id] = Unused
	}
	for text, id := range f.Model.Vocab {
		if id < 0 || s.Types[id] != Unused {
			return specError("model.vocab: id %d of %q is negative or taken", id, text)
		}
		s.Tokens[id], s.Types[id] = text, Normal
		if _, ok := byteToken(text); ok && s.Algorithm == BPE {
			s.Types[id] = Byte
		}
	}
	for _, t := range f.AddedTokens {
		switch {
		case t.ID < 0 || s.Types[t.ID] != Unused && s.Tokens[t.ID] != t.Content:
			return specError("added_tokens: id %d of %q is negative or taken", t.ID, t.Content)
		case t.SingleWord:
			return specError("added_tokens: single_word of %q is not known", t.Content)
		}
		id := int32(t.ID)
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
	}
	return nil
}

func (f *hfFile) readNormalizer(s *Spec) error {
	replaced := false
	for _, c := range f.Normalizer.flatten() {
		switch {
		case c.Type == "NFC":
			s.Normalize = append(s.Normalize, Normalizer{Kind: c.Type})
		case c.Type == "Prepend" && c.Prepend == Space && s.Algorithm == BPE:
			s.Prefix = PrefixAlways
		case c.Type == "Replace" && c.Pattern.isString(" ") && c.Content == Space && s.Algorithm == BPE:
			replaced = true
		default:
			return specError("normalizer %s is not known in this form", c.Type)
		}
	}
	if s.Algorithm == BPE && !replaced && !slices.ContainsFunc(f.PreTokenizer.flatten(), func(c hfComponent) bool { return c.Type == "Metaspace" }) {
		return specError("neither normalizer nor pre_tokenizer turns spaces into %s", Space)
	}
	return nil
}

func (p *hfPattern) isString(s string) bool { return p.String != nil && *p.String == s }

// readPreTokenizer finds the name of the file's list of patterns.
func (f *hfFile) readPreTokenizer(s *Spec) error {
	if s.Algorithm == BPE {
		return f.readMetaspace(s)
	}
	var patterns []*pattern
	last := ""
	for _, c := range f.PreTokenizer.flatten() {
		if last == "ByteLevel" {
			return specError("pre_tokenizer %s after ByteLevel is not known", c.Type)
		}
		last = c.Type
		switch {
		case c.Type == "Split" && c.Pattern.Regex != nil &&
			(c.Behavior == "Isolated" && !c.Invert || c.Behavior == "Removed" && c.Invert):
			p := patternOf(*c.Pattern.Regex)
			if p == nil {
				return specError("pre_tokenizer Split: unknown pattern %q", *c.Pattern.Regex)
			}
			patterns = append(patterns, p)
		case c.Type == "Digits" && c.IndividualDigits:
			patterns = append(patterns, oneDigit)
		case c.Type == "ByteLevel":
			if c.AddPrefixSpace == nil || *c.AddPrefixSpace { // the library's default
				if len(patterns) > 0 {
					return specError("pre_tokenizer ByteLevel with add_prefix_space after %d others is not known", len(patterns))
				}
				s.Prefix = PrefixMissing
			}
			if c.UseRegex == nil || *c.UseRegex {
				patterns = append(patterns, gpt2Words)
			}
		default:
			return specError("pre_tokenizer %s is not known in this form", c.Type)
		}
	}
	if last != "ByteLevel" {
		return specError("pre_tokenizer does not end with ByteLevel")
	}
	found := false
	for _, name := range []string{"", "gpt-2", "dbrx", "llama-bpe", "qwen2", "smollm"} {
		if p := pretokenizers[name]; slices.Equal(p.cuts, isolate(patterns...)) && (!found || p.ignoreMerges == s.IgnoreMerges) {
			s.Pre, found = name, true // of two names, the one that goes with the file's use of merges
		}
	}
	if found {
		return nil
	}
	return specError("pre_tokenizer: unknown sequence of %d patterns", len(patterns))
}

func patternOf(regex string) *pattern {
	for _, p := range []*pattern{gpt2Words, llama3Words, qwen2Words, oneDigit} {
		if slices.Contains(p.hf, regex) {
			return p
		}
	}
	return nil
}

func (f *hfFile) readMetaspace(s *Spec) error {
	for _, c := range f.PreTokenizer.flatten() {
		if c.Type != "Metaspace" || c.Replacement != Space || s.Prefix != NoPrefix {
			return specError("pre_tokenizer %s is not known in this form", c.Type)
		}
		scheme := "always"
		if c.PrependScheme != nil {
			scheme = *c.PrependScheme
		} else if c.AddPrefixSpace != nil && !*c.AddPrefixSpace {
			scheme = "never"
		}
		switch scheme {
		case "always":
			s.Prefix = PrefixMissing
		case "first":
			s.Prefix = PrefixMissingFirst
		case "never":
		default:
			return specError("pre_tokenizer Metaspace: prepend_scheme %q is not known", scheme)
		}
		if c.Split == nil || *c.Split {
			s.Pre = "metaspace"
		}
	}
	return nil
}

// readDecoder checks that decoding undoes what encoding does, which is what a
// [Decoder] does; it has nothing to learn from it.
func (f *hfFile) readDecoder(s *Spec) error {
	known := []string{"ByteLevel"}
	if s.Algorithm == BPE {
		known = []string{"Replace", "ByteFallback", "Fuse", "Strip", "Metaspace"}
	}
	for _, c := range f.Decoder.flatten() {
		if !slices.Contains(known, c.Type) || c.Type == "Replace" && !(c.Pattern.isString(Space) && c.Content == " ") {
			return specError("decoder %s is not known in this form", c.Type)
		}
	}
	return nil
}

// readEnds finds the special tokens of the configuration, and whether prompts
// start or end with one: the configuration decides, else the template.
func (f *hfFile) readEnds(s *Spec, config *hfConfig) error {
	find := func(name string) int32 {
		for id, text := range s.Tokens {
			if text == name && name != "" {
				return int32(id)
			}
		}
		return None
	}
	if config.UNK == "" && f.Model.UnkToken != nil {
		config.UNK = hfName(*f.Model.UnkToken)
	}
	for _, e := range []struct {
		id   *int32
		name hfName
	}{{&s.BOS, config.BOS}, {&s.EOS, config.EOS}, {&s.UNK, config.UNK}, {&s.PAD, config.PAD}} {
		*e.id = find(string(e.name))
	}
	if s.EOS == None && config.EOS != "" {
		return specError("eos_token %q is not in the vocabulary", string(config.EOS))
	}
	for _, c := range f.PostProcessor.flatten() {
		switch c.Type {
		case "ByteLevel": // offsets only
		case "TemplateProcessing":
			if err := c.readTemplate(s); err != nil {
				return err
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

// addGenerationConfig adds the end tokens of a generation_config.json, which
// chat models use to end a turn; data may be nil.
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
		// Padding a vocabulary out is usual, naming a token past it is not.
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
