package spider2

import "testing"

// A reader of foreign files ends on every input, gives every row the header's width, and reads its own writing back.
func FuzzReadFrame(f *testing.F) {
	for _, seed := range []string{"", "\n", "a,b\n1,2\n", "v\n\"x", "v\r 1\r", "a\n 1\n\n \t\n", "a,b\n1,2,3\n4\n", "\ufeffv\nNA\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		frame, err := readFrame(text)
		if err != nil {
			return
		}
		rows := -1
		for _, vector := range frame.vectors() {
			if rows >= 0 && len(vector) != rows {
				t.Fatalf("%q: columns of %d and %d rows", text, rows, len(vector))
			}
			rows = len(vector)
		}
		if same, err := compareTables(frame, frame, condition{}, true); !same || err != nil {
			t.Fatalf("%q does not equal itself", text)
		}
	})
}
