// Package tokenizer turns text into token ids and back.
//
// # Kinds
//
//   - [Llama]: SentencePiece BPE as GGUF files hold it. Pieces have scores; the
//     pair of neighbours whose joint text is the piece with the best score is
//     joined first. A character that is no piece becomes <0xNN> byte tokens.
//   - [GPT2]: byte-level BPE. A pre-tokenizer cuts the text into words, then
//     the bytes of each word are joined in the order of a list of merges.
//   - [BPE]: the Hugging Face form of SentencePiece BPE: characters and byte
//     tokens, joined in the order of a list of merges.
//   - [WordPiece]: BERT's. A word is the longest piece at its start, then the longest
//     at what is left; a word that has no such pieces is unknown.
//   - [PLaMo2]: PLaMo's, like [Unigram] over whole texts, with bytes for the rest.
//   - [Unigram]: T5's and XLM-RoBERTa's. Of all ways to cut a text into pieces, the one
//     whose scores have the largest sum.
//
// # Flow
//
// A [Spec] is plain data: the vocabulary and every setting that changes an id.
// [SpecFromGGUF] and [ParseHF] fill it from a model's files, [Placeholder]
// invents one, and [New] checks it. An unknown setting (a pre-tokenizer, a
// normaliser, …) is an error that names it: ids that are almost right are
// worse than none.
//
//	t, err := tokenizer.FromHF("models/tiny-qwen3/hf")
//	ids := t.Encode("Once upon a time", true)
//	text := t.Decode(ids, true)
//
// [Tokenizer.Encode] goes: special tokens are cut out of the text (special.go);
// the text between them is normalised (normalize.go, forms.go, charsmap.go) and given its space
// prefix (encode.go); it is cut into words (pretokenize.go, or steps.go as a
// tokenizer.json says); neighbours are joined (merge.go), the best sum of scores is
// found (unigram.go), or the longest pieces are taken (wordpiece.go).
//
// # Laws
//
//   - A GGUF vocabulary encodes as llama.cpp does, a Hugging Face one as the
//     tokenizers library does. Where the two differ (Qwen's NFC, which only the
//     Hugging Face file asks for), so do the two forms here; docs/tokenizers.md
//     lists where. The one exception is in endings.go: an ordinary token of text
//     is not taken for a control token, and a token that ends a generation is one.
//   - Any string encodes, in time close to linear in its length, whatever the vocabulary:
//     [New] refuses what could take longer or make a text grow without a bound. Bytes that are
//     not UTF-8 are kept: a byte-level vocabulary with all 256 byte tokens, or a
//     SentencePiece one with all <0xNN> tokens, decodes them byte for byte.
//     (llama.cpp replaces them with U+FFFD in byte-level vocabularies.) A WordPiece
//     vocabulary drops them, a Unigram one has U+FFFD.
//   - With special false, no text is encoded as a control token, but text that cannot be
//     spelled may be one that stands for such text alone.
//   - A [Tokenizer] is safe for use by several goroutines; a [Decoder] is not.
package tokenizer
