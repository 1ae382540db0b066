package sqlparse

import "strings"

// FirstStatement returns the tokens of the first statement of text: all of them unless a semicolon outside parentheses and
// BEGIN … END blocks, or a GO, ends it before. White space and line comments behind the end belong to it. ok is false when
// text has no statement, being empty or white space.
func FirstStatement(text string) (tokens []Token, ok bool) {
	all := Tokens(text)
	var s splitter
	for i, tok := range all {
		if s.done && tok.Kind != Space && tok.Kind != Comment {
			return all[:i], true
		}
		s.take(tok)
	}
	for _, tok := range all {
		if tok.Kind != Space && tok.Kind != Newline {
			return all, true
		}
	}
	return nil, false
}

// splitter follows the nesting of a statement as the library does, with its mistakes: END without a beginning lowers the
// level, a closing parenthesis without an opening one too, and CASE raises it only inside BEGIN.
type splitter struct {
	done       bool
	level      int
	blocks     []string // BEGIN, IF, CASE, LOOP, FOR, WHILE, DECLARE that are open
	loopStart  string   // FOR or WHILE seen, its DO or LOOP not yet
	inCreate   bool
	afterBegin bool
}

func (s *splitter) take(tok Token) {
	s.level += s.change(tok)
	upper := strings.ToUpper(tok.Text)
	switch {
	case tok.Kind == Punctuation && tok.Text == ";":
		s.afterBegin = false
		s.done = s.level <= 0 && !s.inside("BEGIN")
	case tok.Kind == Word && (tok.Text == "GO" || strings.HasPrefix(tok.Text, "GO") && len(strings.Fields(tok.Text)) > 1 && strings.Fields(tok.Text)[0] == "GO"):
		s.done = true
	case tok.Kind != Space && tok.Kind != Newline && tok.Kind != Comment && tok.Kind != Multiline && !(tok.Kind == Word && upper == "BEGIN"):
		s.afterBegin = false
	}
}

// change is by how much tok moves the level.
func (s *splitter) change(tok Token) int {
	if tok.Kind == Punctuation {
		switch tok.Text {
		case ";":
			return s.semicolon()
		case "(":
			return 1
		case ")":
			return -1
		}
		return 0
	}
	if tok.Kind == Create {
		s.inCreate = true
		return 0
	}
	if tok.Kind != Word {
		return 0
	}
	word := strings.ToUpper(tok.Text)
	switch word {
	case "DECLARE":
		if s.inCreate && len(s.blocks) == 0 {
			s.open("DECLARE")
			return 1
		}
	case "BEGIN":
		return s.begin()
	case "TRANSACTION", "WORK", "DEFERRED", "IMMEDIATE", "EXCLUSIVE":
		if s.afterBegin {
			s.afterBegin = false
			return s.closeTop("BEGIN")
		}
	}
	if s.inside("BEGIN") {
		if by, ok := s.nested(word); ok {
			return by
		}
	}
	return s.close(word)
}

// semicolon ends a BEGIN that stands alone, which starts a transaction and no block.
func (s *splitter) semicolon() int {
	s.loopStart = ""
	if !s.afterBegin {
		return 0
	}
	s.afterBegin = false
	return s.closeTop("BEGIN")
}

func (s *splitter) begin() int {
	s.afterBegin = true
	if s.top() == "DECLARE" {
		s.blocks[len(s.blocks)-1] = "BEGIN"
		return 0
	}
	s.open("BEGIN")
	return 1
}

func (s *splitter) nested(word string) (int, bool) {
	switch word {
	case "FOR", "WHILE":
		s.loopStart = word
		return 0, true
	case "LOOP", "DO":
		if s.loopStart != "" {
			s.open(s.loopStart)
			s.loopStart = ""
			return 1, true
		}
		if word == "LOOP" {
			s.open("LOOP")
			return 1, true
		}
	case "IF", "CASE":
		s.open(word)
		return 1, true
	}
	return 0, false
}

func (s *splitter) close(word string) int {
	if word == "END" {
		if len(s.blocks) > 0 {
			s.blocks = s.blocks[:len(s.blocks)-1]
		}
		return -1
	}
	block, ok := strings.CutPrefix(word, "END ") // further white space inside is not recognised, as in the library
	if !ok {
		return 0
	}
	if block == "LOOP" && (s.top() == "FOR" || s.top() == "WHILE") {
		return s.closeTop(s.top())
	}
	return s.closeTop(block)
}

func (s *splitter) open(block string) { s.blocks = append(s.blocks, block) }

// closeTop closes the innermost block if it is of that kind.
func (s *splitter) closeTop(block string) int {
	if s.top() != block {
		return 0
	}
	s.blocks = s.blocks[:len(s.blocks)-1]
	return -1
}

func (s *splitter) top() string {
	if len(s.blocks) == 0 {
		return ""
	}
	return s.blocks[len(s.blocks)-1]
}

func (s *splitter) inside(block string) bool {
	for _, b := range s.blocks {
		if b == block {
			return true
		}
	}
	return false
}
