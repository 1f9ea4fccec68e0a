package app

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/countmill/countmill/internal/testing/emulator"
)

// Through Pub/Sub, a read with the receipt of a 202 has its increment. Other software that publishes
// JSON makes the receipt from the id that Pub/Sub answers.
func TestReceiptsThroughPubSub(t *testing.T) {
	if testing.Short() {
		t.Skip("starts the emulator of Pub/Sub")
	}
	broker := emulator.PubSub(t)
	t.Setenv("PUBSUB_EMULATOR_HOST", broker)
	project := emulator.Project()
	r := startWith(t, Config{Bus: "pubsub://" + project + "/increments?subscription=aggregators"})
	after := func(receipt, want string) {
		t.Helper()
		path := "/v1/totals?" + url.Values{"counter": {"a"}, "after": {receipt}, "wait": {"5s"}}.Encode()
		var status int
		var text string
		r.poll(t, "counted", func() bool { // a busy machine may need longer than one wait
			status, text = r.call(t, "GET", path, "")
			return !strings.Contains(text, ":not-counted-yet")
		})
		if status != http.StatusOK || !strings.Contains(text, want) || !strings.Contains(text, `"dead_letters":[]`) {
			t.Errorf("after %s: got %d %s, want %s in it", receipt, status, text, want)
		}
	}
	for n := range 3 {
		status, text := r.call(t, "POST", "/v1/increments", `{"counter":"a","delta":2}`)
		var accepted struct{ Receipt string }
		if err := json.Unmarshal([]byte(text), &accepted); err != nil || status != http.StatusAccepted || accepted.Receipt == "" {
			t.Fatalf("got %d %s, want 202 with a receipt", status, text)
		}
		after(accepted.Receipt, fmt.Sprintf(`"counter":"a","total":%d,`, 2*(n+1)))
	}
	topic := "projects/" + project + "/topics/increments"
	id := publishJSON(t, broker, topic, `[{"counter":"a","delta":10},{"counter":"b"}]`)
	after(fmt.Sprintf("message:%d:%s:%s", time.Now().Unix(), topic, id), `"counter":"a","total":16,`)
	typeRecipe(t, "API=http://"+broker+"/v1", "TOPIC="+topic, "TOKEN=any", "READER="+r.url)
	if status, text := r.call(t, "GET", "/v1/totals?counter=a&after=message:"+fmt.Sprint(time.Now().Unix())+":"+topic+":999999", ""); status != http.StatusConflict {
		t.Errorf("after a message that nobody published: got %d %s, want 409", status, text)
	}
}

// typeRecipe types the commands for other software from the page, as they are there.
func typeRecipe(t *testing.T, env ...string) {
	t.Helper()
	for _, program := range []string{"sh", "curl", "sed", "base64", "tr", "date"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Logf("the commands of the page are not typed: there is no %s", program)
			return
		}
	}
	page, err := os.ReadFile("../../docs/howto/read-what-you-wrote.md")
	if err != nil {
		t.Fatal(err)
	}
	commands := regexp.MustCompile("(?s)```\n(TIME=.*?)```").FindStringSubmatch(string(page))
	if commands == nil {
		t.Fatal("the page has no commands that begin with TIME=")
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for n := 1; n <= 2; n++ {
		cmd := exec.CommandContext(ctx, "sh", "-euc", commands[1])
		cmd.Env = append(os.Environ(), env...)
		out, err := cmd.CombinedOutput()
		if want := fmt.Sprintf(`"counter":"orders","total":%d,`, n); err != nil || !strings.Contains(string(out), want) || !strings.Contains(string(out), `"dead_letters":[]`) {
			t.Errorf("the commands of the page answer %s (%v), want %s", out, err, want)
		}
	}
}

// publishJSON publishes a message as other software does, and returns its id.
func publishJSON(t *testing.T, broker, topic, text string) string {
	t.Helper()
	body := fmt.Sprintf(`{"messages":[{"data":%q}]}`, base64.StdEncoding.EncodeToString([]byte(text)))
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	resp, err := client.Post("http://"+broker+"/v1/"+topic+":publish", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	var published struct{ MessageIDs []string }
	if err == nil {
		err = json.Unmarshal(answer, &published)
	}
	if err != nil || len(published.MessageIDs) != 1 {
		t.Fatalf("Pub/Sub answers %d %s (%v)", resp.StatusCode, answer, err)
	}
	return published.MessageIDs[0]
}
