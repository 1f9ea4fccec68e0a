package apitest_test

import (
	"testing"

	"github.com/countmill/countmill/internal/api/apitest"
)

func TestTheDocumentIsOpenAPI(t *testing.T) {
	t.Parallel()
	apitest.Load(t).CheckDocument(t)
}
