package engine

import (
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"quern/engine/internal/llama"
	"quern/gguf"
)

// Segment is a piece of a rendered prompt.
type Segment struct {
	Text string
	// FromTemplate: the chat template (or the caller's own code) wrote it, so special tokens in it are meant.
	// Otherwise it came from input: a message, a row of a table, a tool's schema.
	FromTemplate bool
}

// normalises are the pre-tokenizers whose Hugging Face tokenizer.json declares NFC normalisation. llama.cpp has none.
var normalises = map[string]bool{"qwen2": true, "qwen35": true}

// Tokenize turns segments into ids.
//
// Special and added tokens (<|im_end|>, <tool_call>, …) are recognised only inside runs of FromTemplate segments. In
// input such a literal becomes the plain tokens of its letters. Everything between special tokens is tokenized as one
// piece, across segment borders, after NFC normalisation where the reference tokenizer does that. So the ids equal the
// reference's for the whole text, except where input spells a special token. Nothing is put in front or behind (no BOS).
func (m *Model) Tokenize(segments []Segment) ([]Token, error) { return m.tokenize(segments, true) }

// TokenizeReference turns a rendered text into ids as Hugging Face's tokenizer does with the text as a whole: a
// special token is recognised wherever it stands, also where input wrote it.
func (m *Model) TokenizeReference(text string) ([]Token, error) {
	return m.tokenize([]Segment{{Text: text, FromTemplate: true}}, true)
}

// tokenize is Tokenize; without control, only added tokens are recognised, and control tokens (<|im_end|>) are text.
func (m *Model) tokenize(segments []Segment, control bool) ([]Token, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.llama == nil {
		return nil, &Error{Op: "tokenize", Kind: ErrClosed, Err: ErrClosed}
	}
	t := tokenization{model: m}
	for _, run := range runs(segments) {
		text := run.Text
		for run.FromTemplate {
			start, end, special := m.specials.first(text, control)
			if special == nil {
				break
			}
			t.text.WriteString(special.trimLeft(text[:start]))
			t.flush()
			t.ids = append(t.ids, special.id)
			text = special.trimRight(text[end:])
		}
		t.text.WriteString(text)
	}
	t.flush()
	if t.err != nil {
		return nil, &Error{Op: "tokenize", Err: t.err}
	}
	return t.ids, nil
}

// runs joins neighbours of the same origin, so that a special token may be spread over several segments.
func runs(segments []Segment) []Segment {
	var out []Segment
	for _, s := range segments {
		if n := len(out); n > 0 && out[n-1].FromTemplate == s.FromTemplate {
			out[n-1].Text += s.Text
		} else {
			out = append(out, s)
		}
	}
	return out
}

// tokenization collects ids, and the text since the last special token.
type tokenization struct {
	model *Model
	text  strings.Builder
	ids   []Token
	err   error
}

// flush tokenizes the collected text as plain text.
func (t *tokenization) flush() {
	text := t.text.String()
	t.text.Reset()
	if t.model.nfc && !norm.NFC.IsNormalString(text) {
		text = norm.NFC.String(text)
	}
	for text != "" && t.err == nil {
		// llama.cpp takes a control token as text where it is asked to, but an added token always as a token. So the
		// text is cut inside each literal of one, where the pre-tokenizer would cut it too.
		n := t.model.specials.cut(text)
		t.ids, t.err = t.model.llama.Tokenize(t.ids, text[:n], false)
		text = text[n:]
	}
}

// special is a token that is found in text by its literal.
type special struct {
	id      Token
	literal string
	control bool // not to be recognised where control tokens are taken as text
	lstrip  bool // white space before it belongs to it
	rstrip  bool // white space behind it belongs to it
}

func (s *special) trimLeft(before string) string {
	if s.lstrip {
		return strings.TrimRight(before, " \t\n\r")
	}
	return before
}

func (s *special) trimRight(after string) string {
	if s.rstrip {
		return strings.TrimLeft(after, " \t\n\r")
	}
	return after
}

// specials finds special tokens in text: of several at one place the longest, as Hugging Face's tokenizers do.
type specials struct {
	byFirst   [256][]special // by first byte, longest first
	byLiteral map[string]Token
	control   map[Token]bool
}

// typeUserDefined is a value of tokenizer.ggml.token_type: an added token that is not special (llama.h, enum llama_token_type).
const typeUserDefined = 4

// newSpecials collects the special tokens. The file's own types say what is a control token, as in the reference;
// llama.cpp makes control tokens of some more, by their names (<|fim_prefix|>).
func newSpecials(m *llama.Model, attrs []llama.Attr, meta gguf.Metadata) *specials {
	s := &specials{byLiteral: make(map[string]Token), control: make(map[Token]bool)}
	declared, _ := meta.Get("tokenizer.ggml.token_type")
	types, _ := declared.([]int32)
	for id, attr := range attrs {
		special := special{
			id:      Token(id),
			control: attr&(llama.AttrControl|llama.AttrUnknown) != 0,
			lstrip:  attr&llama.AttrLstrip != 0, rstrip: attr&llama.AttrRstrip != 0,
		}
		if !special.control && attr&llama.AttrUserDefined == 0 {
			continue
		}
		if special.literal = m.TokenText(Token(id)); special.literal == "" {
			continue
		}
		if id < len(types) && types[id] == typeUserDefined {
			special.control = false
		}
		s.byLiteral[special.literal] = special.id
		s.control[special.id] = special.control
		list := &s.byFirst[special.literal[0]]
		*list = append(*list, special)
	}
	for _, list := range s.byFirst {
		slices.SortStableFunc(list, func(a, b special) int { return len(b.literal) - len(a.literal) })
	}
	return s
}

// first is the leftmost special token in text, nil where there is none.
func (s *specials) first(text string, control bool) (start, end int, found *special) {
	for i := range len(text) {
		for k := range s.byFirst[text[i]] {
			if t := &s.byFirst[text[i]][k]; (control || !t.control) && strings.HasPrefix(text[i:], t.literal) {
				return i, i + len(t.literal), t
			}
		}
	}
	return 0, 0, nil
}

// cut is how much of text, from its start, can be tokenized without an added token coming up: up to the middle of the
// first literal of one.
func (s *specials) cut(text string) int {
	for i := range len(text) {
		list := s.byFirst[text[i]]
		for k := len(list) - 1; k >= 0; k-- { // the shortest first, so that none fits into what is cut off
			t := &list[k]
			if !t.control && strings.HasPrefix(text[i:], t.literal) {
				if n := splitPoint(t.literal); n < len(t.literal) {
					return i + n
				}
			}
		}
	}
	return len(text)
}

// splitPoint is where to cut a literal: behind its first word, since every pre-tokenizer begins a new piece there, so
// that the cut changes nothing else; without such a place, behind the first character.
func splitPoint(literal string) int {
	for i := 1; i < len(literal); i++ {
		if isLetter(literal[i-1]) && literal[i] < utf8.RuneSelf && !isLetter(literal[i]) && literal[i] != '\'' {
			return i
		}
	}
	_, n := utf8.DecodeRuneInString(literal)
	return n
}

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

// Detokenize turns ids into text. With special, special tokens are written out, else they are dropped. The text may
// end inside a UTF-8 sequence when the ids do. Added tokens that are not special (<tool_call>) are always written.
func (m *Model) Detokenize(ids []Token, special bool) (string, error) {
	var b strings.Builder
	for _, id := range ids {
		if id < 0 || int(id) >= m.VocabSize() {
			return "", &Error{Op: "detokenize", Err: errOutside(id, m.VocabSize())}
		}
		b.WriteString(m.Piece(id, special))
	}
	return b.String(), nil
}

// Piece is the text of one token: raw bytes, maybe part of a UTF-8 sequence; "" for an id outside the vocabulary.
func (m *Model) Piece(id Token, special bool) string {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.llama == nil || id < 0 || int(id) >= len(m.isEnd) {
		return ""
	}
	pieces, err := m.pieces()
	if err != nil {
		return ""
	}
	if piece := pieces[id]; piece != "" || !special {
		return piece
	}
	return m.llama.TokenText(id)
}

// SpecialToken is the id of a control or added token by its literal ("<|im_end|>").
func (m *Model) SpecialToken(literal string) (Token, bool) {
	id, ok := m.specials.byLiteral[literal]
	return id, ok
}
