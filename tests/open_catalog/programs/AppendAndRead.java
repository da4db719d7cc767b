import java.util.Map;
import org.apache.iceberg.Schema;
import org.apache.iceberg.Table;
import org.apache.iceberg.catalog.Namespace;
import org.apache.iceberg.catalog.TableIdentifier;
import org.apache.iceberg.data.GenericRecord;
import org.apache.iceberg.data.IcebergGenerics;
import org.apache.iceberg.data.Record;
import org.apache.iceberg.data.parquet.GenericParquetWriter;
import org.apache.iceberg.io.CloseableIterable;
import org.apache.iceberg.io.DataWriter;
import org.apache.iceberg.parquet.Parquet;
import org.apache.iceberg.rest.RESTCatalog;

/** Appends a row to bank.sale and prints all; its storage is reached by what the catalog hands out. */
public class AppendAndRead {
  public static void main(String[] arguments) throws Exception {
    try (RESTCatalog catalog = new RESTCatalog()) {
      catalog.initialize(
          "home",
          Map.of(
              "uri", arguments[0],
              "credential", arguments[1],
              "oauth2-server-uri", arguments[0] + "/v1/oauth/tokens",
              "header.X-Iceberg-Access-Delegation", "vended-credentials",
              "io-impl", "org.apache.iceberg.aws.s3.S3FileIO",
              "http-client.type", "urlconnection"));
      Table table = catalog.loadTable(TableIdentifier.of(Namespace.of("bank"), "sale"));
      append(table, Long.parseLong(arguments[2]));
      try (CloseableIterable<Record> rows = IcebergGenerics.read(table).build()) {
        for (Record row : rows) {
          System.out.println(row.getField("id"));
        }
      }
    }
  }

  private static void append(Table table, long id) throws Exception {
    Schema schema = table.schema();
    String place = table.locationProvider().newDataLocation("java-" + id + ".parquet");
    DataWriter<Record> writer =
        Parquet.writeData(table.io().newOutputFile(place))
            .schema(schema)
            .withSpec(table.spec())
            .createWriterFunc(message -> GenericParquetWriter.create(schema, message))
            .build();
    try (writer) {
      writer.write(GenericRecord.create(schema).copy("id", id));
    }
    table.newAppend().appendFile(writer.toDataFile()).commit();
  }
}
