package org.apache.iceberg.rest;

import java.io.IOException;
import org.apache.iceberg.catalog.Namespace;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeEach;

/** The table tests of the kit, also those that no setting of it turns on. */
public class WiderTables extends RESTCompatibilityKitCatalogTests {
  /** Drops what the test of nested namespaces leaves: another one must not find it. */
  @BeforeEach
  void dropParent() {
    if (catalog().namespaceExists(Namespace.of("parent"))) {
      catalog().listNamespaces(Namespace.of("parent")).forEach(catalog()::dropNamespace);
      catalog().dropNamespace(Namespace.of("parent"));
    }
  }

  /** Drops what the last test leaves: the tests of views refuse to start with it. */
  @AfterAll
  static void dropLast() throws IOException {
    try (RESTCatalog catalog = RCKUtils.initCatalogClient()) {
      RCKUtils.purgeCatalogTestEntries(catalog);
    }
  }

  @Override
  protected boolean supportsNestedNamespaces() {
    return true;
  }

  @Override
  protected boolean supportsNamesWithSlashes() {
    return true;
  }
}
