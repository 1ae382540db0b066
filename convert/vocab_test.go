package convert

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"testing"

	"quern/gguf"
	"quern/internal/testenv"
)

// openVocabulary reads the metadata of a packed GGUF of the chat references.
func openVocabulary(t *testing.T, name string) gguf.Metadata {
	t.Helper()
	packed, err := os.Open(testenv.OracleInputs(t, "chat", "vocab", name+".gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer packed.Close()
	unpack, err := gzip.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(unpack)
	if err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Read(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	return f.Meta
}
