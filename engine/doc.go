// Package engine runs language models from GGUF files inside the process, with llama.cpp underneath.
//
// # The parts
//
//   - [Load] reads a file and gives a [Model]: weights and vocabulary. It does not change and may be shared.
//   - [Model.NewEngine] gives an [Engine]: one llama.cpp context with its key/value memory. It runs many requests at
//     once, each in a lane of its own, in shared batches.
//   - [Engine.Generate] takes a [Request] (a prompt as token ids) and gives a [Stream] of typed events.
//   - [Model.Tokenize] turns [Segment]s into ids: special tokens arise only from text that the chat template wrote.
//   - [ChatTemplate] renders messages and tools to Segments with llama.cpp's own Jinja engine.
//   - [Adapter] is a LoRA adapter applied while running; [Quantize] writes K-quants; [Estimate] says what a model
//     needs before it is loaded.
//
// Who comes from go-llama.cpp finds the same words: [New] loads a model with options such as [SetContext] and
// [SetGPULayers], [Engine.Predict] completes a text, [SetTokenCallback] sees each piece as it comes and stops the
// generation by returning false, [SetTokens], [SetTopK], [SetTopP], [SetTemperature], [SetSeed] and [SetStopWords] do
// what they did there.
//
// # Concurrency
//
// Every method of Model and Engine may be called from any goroutine. Inside, one goroutine owns the llama.cpp context;
// requests reach it over channels. A context given to a blocking call ends it: a generation stops within one step,
// a load within one tensor, and both leave everything else usable.
//
// # Ownership
//
// Close an Engine before its Model. Close is safe to call twice; a Model closed while an Engine lives is refused.
// An Engine made by [New] owns its Model and closes it.
//
// # Errors
//
// Errors are values; no input ends the process. [Error] names the operation, the file and the cause, and answers
// errors.Is for the kinds [ErrBadFile], [ErrUnsupported], [ErrOutOfMemory], [ErrContextFull], [ErrClosed] and
// [ErrTemplate]. A generation that runs out of room is no error: its [Result] says so ([StopContextFull]).
package engine
