import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import org.apache.iceberg.MetadataUpdateParser;
import org.apache.iceberg.view.ViewMetadata;
import org.apache.iceberg.view.ViewMetadataParser;

/** Each line is a view's metadata and updates, parted by tabs; the answer is what Iceberg makes of them. */
public class UpdateView {
  public static void main(String[] arguments) throws Exception {
    var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      System.out.println(answer(line.split("\t")).replace("\n", " "));
      System.out.flush();
    }
  }

  private static String answer(String[] parts) {
    try {
      ViewMetadata.Builder builder = ViewMetadata.buildFrom(ViewMetadataParser.fromJson(parts[0]));
      for (int at = 1; at < parts.length; at++) {
        MetadataUpdateParser.fromJson(parts[at]).applyTo(builder);
      }
      return ViewMetadataParser.toJson(builder.build());
    } catch (RuntimeException refused) {
      return "refused: " + refused.getMessage();
    }
  }
}
