// Package hub downloads models from the Hugging Face hub, or a server that speaks its protocol, into the cache layout
// that huggingface_hub uses. Downloads resume where they stopped, are checked against the hashes that the hub states,
// and appear under their names only when they are whole.
package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// Client talks to one hub. Its zero value is not usable: see NewClient.
type Client struct {
	Endpoint string // without a trailing slash
	Token    string // "" for public models
	Cache    Cache
	Parallel int           // files at once
	Retries  int           // attempts after the first, for what may pass
	Backoff  time.Duration // before the first retry; doubles
	HTTP     *http.Client
	Progress func(done, total int64) // bytes of this pull; called from several goroutines, one at a time
}

// NewClient returns a client as the environment says: HF_ENDPOINT, HF_TOKEN (or the token file of `hf auth login`) and
// the cache variables.
func NewClient() (*Client, error) {
	cache, err := DefaultCache()
	if err != nil {
		return nil, err
	}
	endpoint := strings.TrimRight(os.Getenv("HF_ENDPOINT"), "/")
	if endpoint == "" {
		endpoint = "https://huggingface.co"
	}
	return &Client{
		Endpoint: endpoint, Token: token(), Cache: cache,
		Parallel: 4, Retries: 5, Backoff: time.Second,
		HTTP: &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, ResponseHeaderTimeout: 30 * time.Second}},
	}, nil
}

func token() string {
	if t := os.Getenv("HF_TOKEN"); t != "" {
		return strings.TrimSpace(t)
	}
	file := os.Getenv("HF_TOKEN_PATH")
	if file == "" {
		home, err := huggingFaceHome()
		if err != nil {
			return ""
		}
		file = filepath.Join(home, "token")
	}
	text, _ := os.ReadFile(file) // no file: a public model needs none
	return strings.TrimSpace(string(text))
}

// repoFile is one file of a repository as the hub lists it.
type repoFile struct {
	Name string `json:"rfilename"`
	Size int64  `json:"size"`
	Blob string `json:"blobId"` // git's sha1 of the content (of the pointer, for large files)
	LFS  *struct {
		SHA256 string `json:"sha256"`
		Size   int64  `json:"size"`
	} `json:"lfs"`
}

func (f repoFile) bytes() int64 {
	if f.LFS != nil {
		return f.LFS.Size
	}
	return f.Size
}

// hash is the content's name in the cache: sha256 for large files, git's blob sha1 for the others.
func (f repoFile) hash() string {
	if f.LFS != nil {
		return f.LFS.SHA256
	}
	return f.Blob
}

// repository is the hub's answer about a model at a revision.
type repository struct {
	Commit string     `json:"sha"`
	Files  []repoFile `json:"siblings"`
}

var (
	hexHash  = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)
	hexSHA1  = regexp.MustCompile(`^[0-9a-f]{40}$`)
	maxReply = int64(64 << 20)
)

// list asks which files a model has at a revision, and refuses an answer that could write outside the cache.
func (c *Client) list(ctx context.Context, id, revision string) (repository, error) {
	address := fmt.Sprintf("%s/api/models/%s/revision/%s?blobs=true", c.Endpoint, id, url.PathEscape(revision))
	var repo repository
	err := c.retry(ctx, func() error {
		reply, err := c.get(ctx, address, 0)
		if err != nil {
			return err
		}
		defer reply.Body.Close()
		if reply.StatusCode != http.StatusOK {
			return statusError(id, reply)
		}
		repo = repository{}
		if err := json.NewDecoder(io.LimitReader(reply.Body, maxReply)).Decode(&repo); err != nil {
			return temporary(fmt.Errorf("%s: the hub's answer about %s is not whole JSON: %w", c.Endpoint, id, err))
		}
		return nil
	})
	if err != nil {
		return repo, err
	}
	if !hexSHA1.MatchString(repo.Commit) {
		return repo, fmt.Errorf("%s: the hub names no commit for %s at %s", c.Endpoint, id, revision)
	}
	for _, f := range repo.Files {
		if !filepath.IsLocal(f.Name) || strings.Contains(f.Name, `\`) || !hexHash.MatchString(f.hash()) || f.bytes() < 0 {
			return repo, fmt.Errorf("%s: the hub lists %q of %s with a name, size or hash that cannot be: not downloaded", c.Endpoint, f.Name, id)
		}
	}
	return repo, nil
}

func (c *Client) get(ctx context.Context, address string, from int64) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	if c.Token != "" {
		request.Header.Set("Authorization", "Bearer "+c.Token) // Go drops it when a redirect leaves the host
	}
	if from > 0 {
		request.Header.Set("Range", fmt.Sprintf("bytes=%d-", from))
	}
	reply, err := c.HTTP.Do(request)
	if err != nil {
		return nil, temporary(fmt.Errorf("%s cannot be reached: %w; check the network, or set HF_ENDPOINT to a mirror", c.Endpoint, err))
	}
	return reply, nil
}

// statusError explains an answer that is not the file, by what a person can do about it.
func statusError(id string, reply *http.Response) error {
	switch code := reply.StatusCode; {
	case reply.Header.Get("X-Error-Code") == "GatedRepo":
		return fmt.Errorf("%s is gated: accept its terms on the model's page, then set HF_TOKEN to a token of that account", id)
	case code == http.StatusUnauthorized, code == http.StatusForbidden:
		return fmt.Errorf("%s: access denied (%s); it does not exist or is private: check the name, or set HF_TOKEN to a token that may read it", id, reply.Status)
	case code == http.StatusNotFound:
		return fmt.Errorf("%s: not found on %s at that revision; check the spelling (it is case-sensitive)", id, reply.Request.URL.Host)
	case code == http.StatusTooManyRequests || code >= 500:
		return temporary(fmt.Errorf("%s: the hub answered %s; try again later", id, reply.Status))
	default:
		return fmt.Errorf("%s: the hub answered %s", id, reply.Status)
	}
}

// temporaryError marks what may pass when tried again.
type temporaryError struct{ error }

func (e temporaryError) Unwrap() error { return e.error }

func temporary(err error) error { return temporaryError{err} }

// retry runs work until it succeeds, fails for good, or the attempts are spent.
func (c *Client) retry(ctx context.Context, work func() error) error {
	wait := c.Backoff
	for attempt := 0; ; attempt++ {
		err := work()
		var passing temporaryError
		if err == nil || ctx.Err() != nil || !errors.As(err, &passing) {
			return errors.Join(ctx.Err(), err)
		}
		if attempt == c.Retries {
			return fmt.Errorf("gave up after %d attempts: %w", attempt+1, err)
		}
		select {
		case <-time.After(wait):
			wait *= 2
		case <-ctx.Done():
		}
	}
}

// choose returns the files that a pattern takes: all of them for "", by whole path or by base name otherwise.
func choose(files []repoFile, ref Ref) ([]repoFile, error) {
	if ref.Pattern == "" {
		return files, nil
	}
	var chosen []repoFile
	var names []string
	for _, f := range files {
		whole, err := path.Match(ref.Pattern, f.Name)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", ref.Pattern, err)
		}
		base, _ := path.Match(ref.Pattern, path.Base(f.Name))
		if whole || base {
			chosen = append(chosen, f)
		}
		names = append(names, f.Name)
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("%s has no file %q; it has: %s", ref.ID, ref.Pattern, strings.Join(names, ", "))
	}
	return chosen, nil
}
