package hub

import (
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// Pulled says where a pull left its files.
type Pulled struct {
	Dir   string   // the snapshot's folder
	Files []string // paths below Dir that were asked for
	Bytes int64    // downloaded now, without what was there already
}

// Pull brings the files that ref names into the cache and returns the snapshot's folder. What is there already is not
// fetched again; what an earlier pull left unfinished is taken up where it stopped. A file whose content does not have
// the hash that the hub states is thrown away, and is an error.
func (c *Client) Pull(ctx context.Context, ref Ref, revision string) (Pulled, error) {
	repo, err := c.list(ctx, ref.ID, revision)
	if err != nil {
		return Pulled{}, err
	}
	files, err := choose(repo.Files, ref)
	if err != nil {
		return Pulled{}, err
	}
	root := c.Cache.repo(ref.ID)
	if err := os.MkdirAll(filepath.Join(root, "blobs"), 0o755); err != nil {
		return Pulled{}, err
	}
	p := &pull{client: c, ref: ref, commit: repo.Commit, root: root, have: map[string]int64{}}
	if err := p.plan(files); err != nil {
		return Pulled{}, err
	}
	if err := p.fetchAll(ctx); err != nil {
		return Pulled{}, err
	}
	return p.finish(files, revision)
}

// pull is one call of Pull under way.
type pull struct {
	client *Client
	ref    Ref
	commit string
	root   string
	needed []repoFile // not in the cache yet

	mu      sync.Mutex
	have    map[string]int64 // bytes of each needed file that are on disk, by hash
	done    int64            // their sum
	total   int64            // bytes of the needed files
	fetched int64            // bytes that came over the network
}

// plan finds what has to be fetched and whether the disk holds it.
func (p *pull) plan(files []repoFile) error {
	var missing int64
	seen := map[string]bool{}
	for _, f := range files {
		if _, err := os.Stat(p.blob(f)); err == nil || seen[f.hash()] {
			continue
		}
		seen[f.hash()] = true
		p.needed = append(p.needed, f)
		p.total += f.bytes()
		missing += f.bytes()
		if part, err := os.Stat(p.part(f)); err == nil {
			missing -= min(part.Size(), f.bytes())
		}
	}
	free, err := freeSpace(p.root)
	if err == nil && uint64(missing) > free {
		return fmt.Errorf("%s needs %s more, but %s has %s free: make room, or set HF_HUB_CACHE to another disk",
			p.ref.ID, size(missing), p.root, size(int64(free)))
	}
	return nil
}

// fetchAll downloads the needed files, several at a time; the first failure stops the others.
func (p *pull) fetchAll(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var workers sync.WaitGroup
	queue := make(chan repoFile)
	for range max(1, p.client.Parallel) {
		workers.Go(func() {
			for f := range queue {
				if err := p.fetch(ctx, f); err != nil {
					cancel(err)
				}
			}
		})
	}
	for _, f := range p.needed {
		if ctx.Err() != nil {
			break
		}
		queue <- f
	}
	close(queue)
	workers.Wait()
	return context.Cause(ctx)
}

// fetch brings one file into the cache. Another process that fetches the same one is waited for.
func (p *pull) fetch(ctx context.Context, f repoFile) error {
	part, err := os.OpenFile(p.part(f), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer part.Close()
	if err := lock(ctx, part); err != nil {
		return fmt.Errorf("%s: waiting for another download of it: %w", p.part(f), err)
	}
	if _, err := os.Stat(p.blob(f)); err == nil {
		return nil // the other process finished it
	}
	if err := p.client.retry(ctx, func() error { return p.resume(ctx, f, part) }); err != nil {
		return fmt.Errorf("%s: %w", f.Name, err)
	}
	if err := p.verify(f, part); err != nil {
		return errors.Join(err, os.Remove(p.part(f)))
	}
	if err := part.Sync(); err != nil {
		return err
	}
	return os.Rename(p.part(f), p.blob(f))
}

// resume asks for what part lacks and appends it.
func (p *pull) resume(ctx context.Context, f repoFile, part *os.File) error {
	have, err := part.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if have > f.bytes() { // left by something else
		have = 0
		if err := part.Truncate(0); err != nil {
			return err
		}
	}
	if have == f.bytes() {
		return nil
	}
	reply, err := p.client.get(ctx, p.address(f), have)
	if err != nil {
		return err
	}
	defer reply.Body.Close()
	switch {
	case reply.StatusCode == http.StatusOK: // a server without ranges starts again
		have = 0
	case reply.StatusCode != http.StatusPartialContent || !rangeFrom(reply, have):
		return statusError(p.ref.ID, reply)
	}
	if err := part.Truncate(have); err != nil {
		return err
	}
	if _, err := part.Seek(have, io.SeekStart); err != nil {
		return err
	}
	got, err := io.Copy(part, &counted{io.LimitReader(reply.Body, f.bytes()-have+1), p, f.hash(), have})
	switch have += got; {
	case isDiskError(err):
		return fmt.Errorf("writing %s: %w", part.Name(), err)
	case err != nil:
		return temporary(fmt.Errorf("the connection broke after %s of %s: %w", size(have), size(f.bytes()), err))
	case have > f.bytes():
		part.Truncate(0)
		return fmt.Errorf("the server sent more than the %s that the hub lists", size(f.bytes()))
	case have < f.bytes():
		return temporary(fmt.Errorf("the server ended after %s of %s", size(have), size(f.bytes())))
	}
	return nil
}

// rangeFrom says whether a partial answer begins where it was asked to.
func rangeFrom(reply *http.Response, from int64) bool {
	return strings.HasPrefix(reply.Header.Get("Content-Range"), fmt.Sprintf("bytes %d-", from))
}

// verify compares a whole file with the hash that names it.
func (p *pull) verify(f repoFile, part *os.File) error {
	var sum hash.Hash
	if len(f.hash()) == 64 {
		sum = sha256.New()
	} else {
		sum = sha1.New()
		fmt.Fprintf(sum, "blob %d\x00", f.bytes()) // as git hashes it
	}
	if _, err := part.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if _, err := io.Copy(sum, part); err != nil {
		return err
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != f.hash() {
		return fmt.Errorf("%s: its hash is %s, the hub says %s: the download is damaged and was removed; pull again", f.Name, got, f.hash())
	}
	return nil
}

// finish links the files under the snapshot's names and notes which commit the revision was.
func (p *pull) finish(files []repoFile, revision string) (Pulled, error) {
	out := Pulled{Dir: filepath.Join(p.root, "snapshots", p.commit), Bytes: p.fetched}
	for _, f := range files {
		name := filepath.Join(out.Dir, filepath.FromSlash(f.Name))
		if err := link(p.blob(f), name); err != nil {
			return out, err
		}
		out.Files = append(out.Files, f.Name)
	}
	refFile := filepath.Join(p.root, "refs", revision)
	if err := os.MkdirAll(filepath.Dir(refFile), 0o755); err != nil {
		return out, err
	}
	return out, os.WriteFile(refFile, []byte(p.commit), 0o644)
}

// link makes name a relative link to blob, replacing one of an earlier state.
func link(blob, name string) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	target, err := filepath.Rel(filepath.Dir(name), blob)
	if err != nil {
		return err
	}
	if have, err := os.Readlink(name); err == nil && have == target {
		return nil
	}
	temporary := name + ".link"
	os.Remove(temporary)
	if err := os.Symlink(target, temporary); err != nil {
		return err
	}
	return os.Rename(temporary, name)
}

func (p *pull) blob(f repoFile) string { return filepath.Join(p.root, "blobs", f.hash()) }
func (p *pull) part(f repoFile) string { return p.blob(f) + ".incomplete" }

func (p *pull) address(f repoFile) string {
	parts := strings.Split(f.Name, "/")
	for i := range parts {
		parts[i] = url.PathEscape(parts[i])
	}
	return fmt.Sprintf("%s/%s/resolve/%s/%s", p.client.Endpoint, p.ref.ID, p.commit, strings.Join(parts, "/"))
}

// counted reports what a copy has read so far.
type counted struct {
	r    io.Reader
	p    *pull
	hash string
	have int64
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.have += int64(n)
	c.p.report(c.hash, c.have, int64(n))
	return n, err
}

// report notes that a file now has so many bytes here, of which fetched came just now.
func (p *pull) report(hash string, have, fetched int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done += have - p.have[hash]
	p.have[hash] = have
	p.fetched += fetched
	if p.client.Progress != nil {
		p.client.Progress(min(p.done, p.total), p.total)
	}
}

func size(n int64) string {
	switch {
	case n >= 1e9:
		return fmt.Sprintf("%.1f GB", float64(n)/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.1f MB", float64(n)/1e6)
	default:
		return fmt.Sprintf("%d bytes", n)
	}
}
