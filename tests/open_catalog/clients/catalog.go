// Apache Iceberg's Go client, unchanged: what it does with tables of a catalog. Run with the address and a credential.

package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/catalog"
	"github.com/apache/iceberg-go/catalog/rest"
	_ "github.com/apache/iceberg-go/io/gocloud/s3"
	"github.com/apache/iceberg-go/table"
)

var (
	ctx    = context.Background()
	id     = iceberg.NestedField{ID: 1, Name: "id", Type: iceberg.PrimitiveTypes.Int64}
	sale   = table.Identifier{"bank", "sale"}
	refund = table.Identifier{"bank", "refund"}
)

func must[T any](found T, err error) T {
	check(err)
	return found
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func rows(json string) arrow.Table {
	fields := []arrow.Field{{Name: "id", Type: arrow.PrimitiveTypes.Int64, Nullable: true}}
	return must(array.TableFromJSON(memory.DefaultAllocator, arrow.NewSchema(fields, nil), []string{json}))
}

func withID(id int64) iceberg.BooleanExpression {
	return iceberg.EqualTo(iceberg.Reference("id"), id)
}

func say(what string, of *table.Table, options ...table.ScanOption) {
	found := must(of.Scan(options...).ToArrowTable(ctx))
	fmt.Printf("%s\t%d\n", what, found.NumRows())
}

func opened() *rest.Catalog {
	return must(rest.NewCatalog(ctx, "home", os.Args[1], rest.WithCredential(os.Args[2])))
}

func makeAndWrite(home *rest.Catalog) *table.Table {
	check(home.CreateNamespace(ctx, table.Identifier{"bank"}, nil))
	schema := iceberg.NewSchema(0, id)
	must(home.CreateTable(ctx, sale, schema))
	staged := table.NewSetPropertiesUpdate(iceberg.Properties{"kind": "staged"})
	must(home.CreateTable(ctx, refund, schema, catalog.WithStagedUpdates(staged)))
	found := must(home.LoadTable(ctx, sale))
	found = must(found.AppendTable(ctx, rows(`[{"id": 1}, {"id": 2}, {"id": 3}]`), 8, nil))
	say("appended", found)
	found = must(found.Delete(ctx, withID(2), nil))
	say("deleted", found)
	return must(found.OverwriteTable(ctx, rows(`[{"id": 4}]`), 8, nil, table.WithOverwriteFilter(withID(3))))
}

func change(found *table.Table) *table.Table {
	first := found.Metadata().Snapshots()[0].SnapshotID
	changes := found.NewTransaction()
	check(changes.SetProperties(iceberg.Properties{"kept": "yes"}))
	columns := changes.UpdateSchema(true, false)
	check(columns.AddColumn([]string{"note"}, iceberg.PrimitiveTypes.String, "", false, nil).Commit())
	found = must(changes.Commit(ctx))
	branch := found.NewTransactionOnBranch("audit")
	check(branch.AppendTable(ctx, rows(`[{"id": 9}]`), 8, nil))
	found = must(branch.Commit(ctx))
	say("main", found)
	say("audit", found, table.WithSnapshotID(found.SnapshotByName("audit").SnapshotID))
	say("first", found, table.WithSnapshotID(first))
	return found
}

func commitTwo(home *rest.Catalog) {
	both := must(catalog.NewMultiTableTransaction(home))
	for _, name := range []table.Identifier{sale, refund} {
		changes := must(home.LoadTable(ctx, name)).NewTransaction()
		check(changes.AppendTable(ctx, rows(`[{"id": 7}]`), 8, nil))
		check(both.AddTransaction(changes))
	}
	check(both.Commit(ctx))
}

func renameAndDrop(home *rest.Catalog) {
	gone := table.Identifier{"bank", "gone"}
	must(home.CreateTable(ctx, gone, iceberg.NewSchema(0, id)))
	must(home.RenameTable(ctx, gone, table.Identifier{"bank", "old"}))
	check(home.DropTable(ctx, table.Identifier{"bank", "old"}))
	_, err := home.LoadTable(ctx, gone)
	fmt.Printf("loaded\t%v\n", err)
}

func main() {
	home := opened()
	change(makeAndWrite(home))
	commitTwo(home)
	renameAndDrop(home)
}
