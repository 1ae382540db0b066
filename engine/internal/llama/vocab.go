package llama

// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"math"
	"unsafe"
)

// Attr is llama_token_attr, a set of bits.
type Attr uint32

const (
	AttrUnknown     Attr = C.LLAMA_TOKEN_ATTR_UNKNOWN
	AttrUnused      Attr = C.LLAMA_TOKEN_ATTR_UNUSED
	AttrControl     Attr = C.LLAMA_TOKEN_ATTR_CONTROL
	AttrUserDefined Attr = C.LLAMA_TOKEN_ATTR_USER_DEFINED
	AttrLstrip      Attr = C.LLAMA_TOKEN_ATTR_LSTRIP
	AttrRstrip      Attr = C.LLAMA_TOKEN_ATTR_RSTRIP
	AttrEOG         Attr = 1 << 31 // the token ends a generation (llama_vocab_is_eog); not a bit of llama.cpp
)

// VocabSize is llama_vocab_n_tokens.
func (m *Model) VocabSize() int { return int(C.llama_vocab_n_tokens(m.vocab)) }

func (m *Model) valid(id Token) bool { return id >= 0 && int(id) < m.VocabSize() }

// TokenText is the token's entry in the vocabulary, undecoded (llama_vocab_get_text).
func (m *Model) TokenText(id Token) string {
	if !m.valid(id) {
		return ""
	}
	return C.GoString(C.llama_vocab_get_text(m.vocab, C.llama_token(id)))
}

// TokenAttrs are the attributes of all tokens (llama_vocab_get_attr).
func (m *Model) TokenAttrs() []Attr {
	attrs := make([]Attr, m.VocabSize())
	if len(attrs) > 0 {
		C.qn_attrs(m.vocab, (*C.uint32_t)(unsafe.Pointer(&attrs[0])))
	}
	return attrs
}

// BOS and EOS are ids, or -1 where the vocabulary has none.
func (m *Model) BOS() Token { return Token(C.llama_vocab_bos(m.vocab)) }
func (m *Model) EOS() Token { return Token(C.llama_vocab_eos(m.vocab)) }

// Tokenize appends the ids of text to dst (llama_tokenize, without BOS and EOS). User-defined tokens are recognised
// always, control tokens only with parseSpecial.
func (m *Model) Tokenize(dst []Token, text string, parseSpecial bool) ([]Token, error) {
	if text == "" {
		return dst, nil
	}
	if len(text) > math.MaxInt32/4 {
		return dst, fmt.Errorf("the text is too long to tokenize: %d bytes", len(text))
	}
	start, room := len(dst), len(text)/2+8
	for {
		dst = append(dst[:start], make([]Token, room)...)
		n := int(C.qn_tokenize(m.vocab, (*C.char)(unsafe.Pointer(unsafe.StringData(text))), C.int32_t(len(text)),
			(*C.llama_token)(unsafe.Pointer(&dst[start])), C.int32_t(room), C.bool(parseSpecial)))
		switch {
		case n == math.MinInt32:
			return dst[:start], errors.New("llama.cpp could not tokenize the text")
		case n < 0:
			room = -n
		default:
			return dst[:start+n], nil
		}
	}
}

// Pieces are the texts of all tokens (llama_token_to_piece): raw bytes, maybe parts of UTF-8 sequences. Control tokens
// have a text only with special.
func (m *Model) Pieces(special bool) ([]string, error) {
	ends := make([]uint32, m.VocabSize())
	if len(ends) == 0 {
		return nil, nil
	}
	all := C.qn_pieces(m.vocab, C.bool(special), (*C.uint32_t)(unsafe.Pointer(&ends[0])))
	if all == nil {
		return nil, errors.New("the texts of the vocabulary cannot be read")
	}
	defer C.free(unsafe.Pointer(all))
	text := C.GoStringN(all, C.int(ends[len(ends)-1]))
	pieces, start := make([]string, len(ends)), uint32(0)
	for i, end := range ends {
		pieces[i], start = text[start:end], end
	}
	return pieces, nil
}
