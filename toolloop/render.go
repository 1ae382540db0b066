package toolloop

// Roles of a message.
const (
	RoleSystem    = "system"
	RoleUser      = "user"
	RoleAssistant = "assistant"
	RoleTool      = "tool"
)

// Message is one message as a chat template sees it.
type Message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// RenderOptions are what a chat template is given beside the messages.
type RenderOptions struct {
	Tools               []Definition // nil: no tools
	AddGenerationPrompt bool         // end with the opening of the assistant's turn
	Thinking            *bool        // the template's enable_thinking; nil: not given
}

// Segment is a piece of rendered text that says who wrote it.
type Segment struct {
	Text string
	// Template is true for text of the template itself. Only there may a control or tool token be recognised; the rest
	// is content, where "<|im_end|>" is ten characters of text.
	Template bool
}

// Renderer applies a model's chat template.
type Renderer interface {
	// Render returns the text of a conversation in order; segments may be split anywhere. An error is one that the
	// template raised (a role it does not know) or a template that cannot be run.
	Render(messages []Message, opts RenderOptions) ([]Segment, error)
}

// Tokenizer turns text into ids and back.
type Tokenizer interface {
	// Tokenize gives the ids of the segments' joined text: added and control tokens are recognised where the template
	// wrote them, everything between two of them is split as one text, wherever segments meet. No token is added at
	// the ends.
	Tokenize(segments []Segment) ([]Token, error)
	// Detokenize gives the text of ids. Control tokens (<|im_end|>) are kept or dropped; tokens that are added but not
	// control (<tool_call>) always stay. Bytes that are not UTF-8 become U+FFFD.
	Detokenize(ids []Token, keepControl bool) string
	// IsEOG says whether the model ends its turn with this token.
	IsEOG(id Token) bool
}
