package cli

import (
	"context"
	"database/sql"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"quern/internal/testenv"
)

// browserPage is a page in headless Chromium.
type browserPage struct {
	t   *testing.T
	ctx context.Context
}

func openPage(t *testing.T, address string) browserPage {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		if path, err = exec.LookPath("google-chrome"); err != nil {
			testenv.Missing(t, "no chromium here to look at the page with (Debian/Ubuntu: sudo apt-get install chromium)")
		}
	}
	ctx, cancel := chromedp.NewContext(context.Background(),
		chromedp.WithAllocatorOptions(chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.WindowSize(1000, 900)))
	t.Cleanup(cancel)
	p := browserPage{t, ctx}
	p.do(chromedp.Navigate("http://" + address + "/"))
	p.wait(`document.getElementById("about").textContent !== ""`)
	return p
}

func (p browserPage) do(steps ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	if err := chromedp.Do(p.ctx, steps...); err != nil {
		p.t.Fatal(err)
	}
}

// text is what a JavaScript expression gives, as text.
func (p browserPage) text(expression string) string {
	p.t.Helper()
	v, err := chromedp.Run(p.ctx, chromedp.Evaluate[string]("String("+expression+")"))
	if err != nil {
		p.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// in is the text inside the first element that a selector finds.
func (p browserPage) in(selector string) string {
	p.t.Helper()
	return p.text("document.querySelector(" + strconv.Quote(selector) + ").textContent")
}

// wait waits until an expression is true.
func (p browserPage) wait(expression string) {
	p.t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); p.text(expression) != "true"; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			p.t.Fatalf("%s does not come true; the page says %s", expression, p.in("body"))
		}
	}
}

func (p browserPage) click(selector string) {
	p.t.Helper()
	p.text("document.querySelector(" + strconv.Quote(selector) + ").click()")
}

// ask types a question, sends it with the Enter key, and waits for its answer.
func (p browserPage) ask(question string) {
	p.t.Helper()
	before := p.text("document.querySelectorAll('.answer').length")
	p.do(chromedp.SendKeys(chromedp.CSS("#question"), question+"\r"))
	p.wait("document.querySelectorAll('.answer').length > " + before)
	p.wait("document.querySelector('.answer:last-child .foot').textContent !== '' || document.querySelector('.answer:last-child .notes.bad') !== null")
}

// screenshot keeps what the page looks like where QUERN_SCREENSHOTS names a folder.
func (p browserPage) screenshot(name string) {
	p.t.Helper()
	dir := os.Getenv("QUERN_SCREENSHOTS")
	if dir == "" {
		return
	}
	image, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), image, 0o644); err != nil {
		p.t.Fatal(err)
	}
}

func TestPageAnswers(t *testing.T) {
	p := openPage(t, startServe(t))
	p.ask(lookupQuestion)
	for selector, want := range map[string]string{
		"title": "harbor.sqlite", "#about": "harbor.sqlite", ".answer .sql code": "kind = ' TRAWLER'", ".answer td": lookupRow, ".answer .steps ol": "SELECT DISTINCT kind",
	} {
		if got := p.in(selector); !strings.Contains(got, want) {
			t.Errorf("%s: %q lacks %q", selector, got, want)
		}
	}
	p.screenshot("page.png")

	p.click("#fresh")
	p.ask("Show the name of the ports and their number of vessels.")
	if n := p.text("document.querySelectorAll('.answer:last-child .chart rect').length"); n != "12" {
		t.Errorf("the chart has %s bars for 12 rows", n)
	}
	first := p.in(".answer:last-child tbody td")
	p.click(".answer:last-child thead button")
	p.click(".answer:last-child thead button")
	if sorted := p.in(".answer:last-child tbody td"); first != "Anna Jones" || sorted != "Victor Nelson" {
		t.Errorf("the first row is %q, sorted downwards %q", first, sorted)
	}
	p.screenshot("chart.png")

	p.click("#show-schema")
	p.wait("document.querySelector('#schema h3') !== null")
	if got := p.in("#schema"); !strings.Contains(got, "→ ports.port_id") {
		t.Errorf("schema: %q", got)
	}
	p.click("#show-history")
	p.wait("document.querySelector('#history button') !== null")
	p.do(chromedp.EmulateViewport(390, 800))
	if wider := p.text("document.documentElement.scrollWidth > innerWidth"); wider != "false" {
		t.Error("on a phone the page is wider than its screen")
	}
	p.screenshot("phone.png")
	if outside := p.text(`performance.getEntriesByType("resource").filter(e => !e.name.startsWith(location.origin)).map(e => e.name).join()`); outside != "" {
		t.Errorf("the page asked for %s", outside)
	}
}

// The stop button and the Escape key end the question under way; the page can be asked again.
func TestPageStops(t *testing.T) {
	p := openPage(t, startServe(t))
	p.text(`(window.realFetch = fetch, window.fetch = (address, options) => new Promise((_, refuse) =>
		options.signal.addEventListener("abort", () => refuse(new DOMException("", "AbortError")))), "")`)
	for i, stop := range []func(){
		func() { p.click("#stop") },
		func() { p.do(chromedp.SendKeys(chromedp.CSS("#question"), "\x1b")) },
	} {
		p.do(chromedp.SendKeys(chromedp.CSS("#question"), "Count the ports.\r"))
		p.wait(`!document.querySelector("#stop").hidden && document.querySelector("#send").hidden`)
		stop()
		p.wait(`document.querySelector(".answer:last-child .notes").textContent === "Stopped."`)
		if n := p.text(`document.querySelectorAll(".answer").length`); n != strconv.Itoa(i+1) {
			t.Errorf("%s answers after %d questions", n, i+1)
		}
	}
	p.text(`(window.fetch = window.realFetch, "")`)
	p.ask("Count the ports.")
	if cell := p.in(".answer:last-child td"); cell != "21" {
		t.Errorf("after stopping: %q", cell)
	}
}

// A download is the whole result, asked for again under the person's limits.
func TestPageDownloads(t *testing.T) {
	p := openPage(t, startServe(t))
	p.ask("Count the ports.")
	p.text(`(URL.createObjectURL = (blob) => (blob.text().then((text) => (window.saved = text)), "#"), URL.revokeObjectURL = () => {},
		HTMLAnchorElement.prototype.click = function () { window.savedAs = this.download }, "")`)
	for format, want := range map[string]string{"csv": "count(*)\n21\n", "json": `{"columns":["count(*)"],"types":[""],"rows":[[21]],"truncated":false}` + "\n"} {
		p.text(`(window.saved = "", "")`)
		p.click(".answer .download [data-format=" + format + "]")
		p.wait(`window.saved !== "" || document.querySelector(".notes.bad") !== null`)
		if got, name := p.text("window.saved"), p.text("window.savedAs"); got != want || name != "answer."+format {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// Whatever a cell or a name says is text: nothing in it becomes markup or runs.
func TestPageShowsHostileDataAsText(t *testing.T) {
	const hostile = `<img src=x onerror="document.title='owned'"><script>document.title='owned'</script>`
	file := filepath.Join(t.TempDir(), "hostile.sqlite")
	db, err := sql.Open("sqlite3", file)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	_, err = db.Exec(`CREATE TABLE ports (port_id INTEGER PRIMARY KEY, name TEXT, "<b onclick=x>" TEXT); INSERT INTO ports (name) VALUES (?)`, hostile)
	if err != nil {
		t.Fatal(err)
	}
	p := openPage(t, startServe(t, "--db", file))
	p.ask("What are the name of the ports?")
	if cell := p.in(".answer td"); cell != hostile {
		t.Errorf("cell %q", cell)
	}
	p.click("#show-schema")
	p.wait("document.querySelector('#schema h3') !== null")
	for expression, want := range map[string]string{
		"document.images.length": "0", "document.scripts.length": "1", "document.title.includes('owned')": "false",
		"document.querySelector('#schema').textContent.includes('<b onclick=x>')": "true",
	} {
		if got := p.text(expression); got != want {
			t.Errorf("%s is %s, want %s", expression, got, want)
		}
	}
	p.screenshot("hostile.png")
}
