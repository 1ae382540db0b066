package toolloop

import (
	"fmt"
	"slices"
)

// Conversation is what the model has seen: a list of token ids that only grows.
type Conversation struct {
	ids       []Token
	generated []bool // of each id: the model wrote it
	turnOpen  bool   // it ends with the opening of the assistant's turn
	thinkOpen bool   // and inside a think block
}

// ResumeConversation makes a conversation of ids that were kept after the model's last answer; it waits for the user.
// The ids must come from the model that goes on with them.
func ResumeConversation(ids []Token) *Conversation {
	return &Conversation{ids: slices.Clone(ids), generated: make([]bool, len(ids))}
}

// IDs returns the ids; the caller must not change them.
func (c *Conversation) IDs() []Token { return c.ids }

// Len is the number of ids.
func (c *Conversation) Len() int { return len(c.ids) }

// Clone returns a conversation that can go on apart from this one.
func (c *Conversation) Clone() *Conversation {
	d := *c
	d.ids, d.generated = slices.Clone(c.ids), slices.Clone(c.generated)
	return &d
}

func (c *Conversation) append(ids []Token, generated bool) {
	c.ids = append(c.ids, ids...)
	for range ids {
		c.generated = append(c.generated, generated)
	}
}

// open appends ids that end with the opening of the assistant's turn.
func (c *Conversation) open(ids []Token, thinkOpen bool) {
	c.append(ids, false)
	c.turnOpen, c.thinkOpen = true, thinkOpen
}

// turns renders single turns and tokenizes them, so that they can be appended to a conversation. A template has no
// notion of a turn alone, so a turn is rendered behind a stand-in for what came before, whose text is cut off again.
type turns struct {
	renderer  Renderer
	tokenizer Tokenizer
	thinking  *bool
	reference bool // every segment counts as the template's
}

// first renders the beginning of a conversation.
func (t turns) first(messages []Message, tools []Definition) ([]Segment, error) {
	return t.renderer.Render(messages, RenderOptions{Tools: tools, AddGenerationPrompt: true, Thinking: t.thinking})
}

// next renders messages that follow on an assistant's turn, up to the opening of the next one.
func (t turns) next(messages ...Message) ([]Segment, error) {
	before := []Message{{Role: RoleUser, Content: "."}}
	prefix, err := t.renderer.Render(before, RenderOptions{Thinking: t.thinking})
	if err != nil {
		return nil, err
	}
	all, err := t.renderer.Render(append(before, messages...), RenderOptions{AddGenerationPrompt: true, Thinking: t.thinking})
	if err != nil {
		return nil, err
	}
	return cutPrefix(all, textOf(prefix))
}

// closing renders what the template writes behind the content of an assistant's turn.
func (t turns) closing() ([]Segment, error) {
	const mark = "x"
	segments, err := t.renderer.Render([]Message{{Role: RoleUser, Content: "."}, {Role: RoleAssistant, Content: mark}}, RenderOptions{Thinking: t.thinking})
	if err != nil {
		return nil, err
	}
	for i := len(segments) - 1; i >= 0; i-- {
		if !segments[i].Template {
			return segments[i+1:], nil
		}
	}
	return nil, fmt.Errorf("toolloop: the chat template leaves out an assistant's content")
}

func (t turns) tokenize(segments []Segment) ([]Token, error) {
	if t.reference {
		segments = []Segment{{Text: textOf(segments), Template: true}}
	}
	ids, err := t.tokenizer.Tokenize(segments)
	if err != nil {
		return nil, fmt.Errorf("toolloop: tokenize: %w", err)
	}
	return ids, nil
}

// start puts the first prompt into a new conversation.
func (t turns) start(messages []Message, tools []Definition) (*Conversation, error) {
	segments, err := t.first(messages, tools)
	if err != nil {
		return nil, fmt.Errorf("toolloop: render the prompt: %w", err)
	}
	ids, err := t.tokenize(segments)
	if err != nil {
		return nil, err
	}
	c := &Conversation{}
	c.open(ids, leavesThinkOpen(templateText(segments)))
	return c, nil
}

// nextIDs are the ids of the messages behind the conversation as it stands, up to the opening of the assistant's turn.
// close: also what a full rendering has between the end token and the next turn.
func (t turns) nextIDs(c *Conversation, close bool, messages ...Message) (ids []Token, thinkOpen bool, err error) {
	segments, err := t.next(messages...)
	if err != nil {
		return nil, false, fmt.Errorf("toolloop: render a turn: %w", err)
	}
	ids, err = t.tokenize(segments)
	if err != nil {
		return nil, false, err
	}
	end, err := t.closingIDs(c, close)
	return append(end, ids...), leavesThinkOpen(templateText(segments)), err
}

// closingIDs are the ids that close the assistant's turn at the end of c: all of them where the model did not end it
// itself, else, if asked for, what the template writes behind the end token.
func (t turns) closingIDs(c *Conversation, behindEnd bool) ([]Token, error) {
	ended := len(c.ids) > 0 && t.tokenizer.IsEOG(c.ids[len(c.ids)-1])
	if ended && !behindEnd {
		return nil, nil
	}
	segments, err := t.closing()
	if err != nil {
		return nil, fmt.Errorf("toolloop: render the end of a turn: %w", err)
	}
	ids, err := t.tokenize(segments)
	if err != nil {
		return nil, err
	}
	if ended && len(ids) > 0 && t.tokenizer.IsEOG(ids[0]) {
		ids = ids[1:]
	}
	return ids, nil
}

func textOf(segments []Segment) string {
	n := 0
	for _, s := range segments {
		n += len(s.Text)
	}
	b := make([]byte, 0, n)
	for _, s := range segments {
		b = append(b, s.Text...)
	}
	return string(b)
}

// templateText is the text that the template wrote; what stood between is a space, so that no tag arises.
func templateText(segments []Segment) string {
	var b []byte
	for _, s := range segments {
		if s.Template {
			b = append(b, s.Text...)
		} else {
			b = append(b, ' ')
		}
	}
	return string(b)
}

// cutPrefix removes a text from the front of the segments.
func cutPrefix(segments []Segment, prefix string) ([]Segment, error) {
	for len(prefix) > 0 {
		if len(segments) == 0 {
			return nil, errPrefix
		}
		s := segments[0]
		n := min(len(s.Text), len(prefix))
		if s.Text[:n] != prefix[:n] {
			return nil, errPrefix
		}
		prefix = prefix[n:]
		if n == len(s.Text) {
			segments = segments[1:]
			continue
		}
		s.Text = s.Text[n:]
		segments = append([]Segment{s}, segments[1:]...)
	}
	return segments, nil
}

var errPrefix = fmt.Errorf("the chat template changes earlier turns when a turn is added, so that no turn can be appended")
