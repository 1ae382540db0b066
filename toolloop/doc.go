// Package toolloop runs text-to-SQL agents: a model generates, its tool calls are executed, what they returned is
// shown to it, until it answers or a limit is reached.
//
// A conversation is a list of token ids that only grows. What the model generated stays as it was generated, and each
// tool turn is rendered alone and appended as ids; nothing is rendered twice. That is what the models saw in training,
// and it is what makes reuse of the key-value cache exact.
//
// Two profiles fix how a family of models was trained: hermes (JSON calls, Qwen2.5 as trained with verl and Oumi) and
// qwen-xml (XML calls, Qwen3.5). A profile is chosen by name or by the model's metadata, never guessed from output.
//
// A mistake of the model (an unknown tool, broken JSON, failing SQL) is data: it becomes an Observation that the model
// sees, or a stop reason. A Go error means that our side broke.
//
// The package knows no engine, no database and no server. It states what it needs: Generator, Renderer, Tokenizer and
// Tool. A Loop may be shared by many goroutines if its parts may be; a Conversation has one user at a time.
package toolloop
