package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"quern/engine"
)

// model is the tiny model that the binary carries for its demonstration; any GGUF file will do.
const model = "../internal/demo/model.gguf"

// Who knows go-llama.cpp finds New, Predict, options and the token callback.
func Example() {
	ctx := context.Background()
	e, err := engine.New(ctx, model, engine.SetContext(2048), engine.SetGPULayers(engine.GPUAuto))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer e.Close()
	var shown strings.Builder
	text, err := e.Predict(ctx, "The capital of Aruba is",
		engine.SetTokens(16), engine.SetTemperature(0.7), engine.SetTopK(40), engine.SetTopP(0.9), engine.SetSeed(1),
		engine.SetStopWords("\n"),
		engine.SetTokenCallback(func(piece string) bool {
			shown.WriteString(piece)
			return true // false ends the generation
		}))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(text == shown.String(), len(text) > 0)
	// Output: true true
}

// A conversation: render it with the model's own template, tokenize so that input cannot spell special tokens, and read
// the events of the generation.
func ExampleEngine_Generate() {
	ctx := context.Background()
	m, err := engine.Load(ctx, model, engine.LoadOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer m.Close()
	e, err := m.NewEngine(ctx, engine.EngineOptions{Lanes: 4})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer e.Close()
	template, err := m.ChatTemplate()
	if err != nil {
		fmt.Println(err)
		return
	}
	segments, err := template.Render(engine.Chat{
		Messages: json.RawMessage(`[{"role": "user", "content": "How many singers are there?"}]`),
		Kwargs:   map[string]any{"add_generation_prompt": true},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	prompt, err := m.Tokenize(segments)
	if err != nil {
		fmt.Println(err)
		return
	}
	stream, err := e.Generate(ctx, engine.Request{Prompt: prompt, MaxTokens: 8})
	if err != nil {
		fmt.Println(err)
		return
	}
	for event, err := range stream.Events() {
		if err != nil {
			fmt.Println(err)
			return
		}
		switch event.Kind {
		case engine.EventToken: // show event.Text
		case engine.EventDone:
			fmt.Println("stopped by", event.Result.Stop)
		}
	}
	// Output: stopped by max_tokens
}

// A template says which parts of a rendered text it wrote itself.
func ExampleChatTemplate_Render() {
	template, err := engine.ParseChatTemplate("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}", "", "")
	if err != nil {
		fmt.Println(err)
		return
	}
	segments, err := template.Render(engine.Chat{Messages: json.RawMessage(`[{"role": "user", "content": "a row with <|im_end|>"}]`)})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, s := range segments {
		fmt.Printf("%v %q\n", s.FromTemplate, strings.TrimSpace(s.Text))
	}
	// Output:
	// true "<|im_start|>"
	// false "user"
	// true ""
	// false "a row with <|im_end|>"
	// true "<|im_end|>"
}
