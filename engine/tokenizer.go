package engine

// Segment is a piece of a rendered prompt.
type Segment struct {
	Text string
	// FromTemplate: the chat template (or the caller's own code) wrote it, so special tokens in it are meant.
	// Otherwise it came from input: a message, a row of a table, a tool's schema.
	FromTemplate bool
}

// Tokenize turns segments into ids.
//
// Special and added tokens (<|im_end|>, <tool_call>, …) are recognised only inside runs of FromTemplate segments. In
// input such a literal becomes the plain tokens of its letters. Everything between special tokens is tokenized as one
// piece, across segment borders, after NFC normalisation where the reference tokenizer does that. So the ids equal the
// reference's for the whole text, except where input spells a special token. Nothing is put in front or behind (no BOS).
func (m *Model) Tokenize(segments []Segment) ([]Token, error) { return nil, errStub }

// TokenizeReference turns a rendered text into ids as Hugging Face's tokenizer does with the text as a whole: a
// special token is recognised wherever it stands, also where input wrote it.
func (m *Model) TokenizeReference(text string) ([]Token, error) { return nil, errStub }

// Detokenize turns ids into text. With special, special tokens are written out, else they are dropped. The text may
// end inside a UTF-8 sequence when the ids do.
func (m *Model) Detokenize(ids []Token, special bool) (string, error) { return "", errStub }

// Piece is the text of one token: raw bytes, maybe part of a UTF-8 sequence.
func (m *Model) Piece(id Token, special bool) string { return "" }

// SpecialToken is the id of a control or added token by its literal ("<|im_end|>").
func (m *Model) SpecialToken(literal string) (Token, bool) { return 0, false }
