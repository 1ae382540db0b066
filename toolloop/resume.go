package toolloop

import "slices"

// ResumeConversation makes a conversation of ids that were kept after the model's last answer; it waits for the user.
// The ids must come from the model that goes on with them.
func ResumeConversation(ids []Token) *Conversation {
	return &Conversation{ids: slices.Clone(ids), generated: make([]bool, len(ids))}
}
