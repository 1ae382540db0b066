package openaiapi

import "testing"

func TestSplitIsTheSameInAnyPieces(t *testing.T) {
	for _, c := range []struct {
		text                      string
		thinking, tools           bool
		reasoning, content, calls string
	}{
		{"hello", false, true, "", "hello", ""},
		{"a\n</think>\n\nhello <b>", true, true, "a\n", "hello <b>", ""},
		{"<think>a</think>b", false, false, "a", "b", ""},
		{"Look.\n<tool_call>\n{}\n</tool_call>", false, true, "", "Look.\n", "<tool_call>\n{}\n</tool_call>"},
		{"<tool_call>\n{}", false, false, "", "<tool_call>\n{}", ""},
		{"<tool_call>x</think>\n<tool_call>y", true, true, "<tool_call>x", "", "<tool_call>y"},
		{"1 < 2 and <tool", false, true, "", "1 < 2 and <tool", ""},
		{"ü<thin", false, true, "", "ü<thin", ""},
	} {
		for size := 1; size <= len(c.text); size++ {
			s := splitter{thinking: c.thinking, tools: c.tools}
			var reasoning, content string
			for from := 0; from < len(c.text); from += size {
				r, t := s.push(c.text[from:min(from+size, len(c.text))])
				reasoning, content = reasoning+r, content+t
			}
			r, said := s.flush()
			reasoning, content = reasoning+r, content+said
			if reasoning != c.reasoning || content != c.content || s.calls != c.calls {
				t.Errorf("%q in pieces of %d: reasoning %q, content %q, calls %q", c.text, size, reasoning, content, s.calls)
			}
		}
	}
}
